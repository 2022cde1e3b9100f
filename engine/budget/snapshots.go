package budget

import (
	"context"
	"sync"
	"time"
)

// Snapshots makes the snapshots for the programs of one holder: one at a time, at most one per snapshotEvery, and at
// most for 1/snapshotShare of the time. All programs that asked before a snapshot was begun share that snapshot.
type Snapshots struct {
	turn  chan struct{} // held by the goroutine that makes a snapshot; guards begun, next and body
	begun time.Time     // when the last snapshot was begun
	next  time.Time     // earliest time at which the next snapshot may be begun
	body  []byte        // encoded snapshot, while a program waits for it

	mu      sync.Mutex
	waiting int // programs that wait for an answer
}

func newSnapshots() Snapshots { return Snapshots{turn: make(chan struct{}, 1)} }

// Ask counts a program that asks for a snapshot. The program calls done when it has the answer.
func (s *Snapshots) Ask() (done func()) {
	s.mu.Lock()
	s.waiting++
	s.mu.Unlock()
	return s.answered
}

// answered drops a snapshot for which no program waits any more.
func (s *Snapshots) answered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting--; s.waiting == 0 {
		s.body = nil // safe without turn: no program waits, so no goroutine has the turn
	}
}

// Snapshot returns a snapshot that was begun at the time asked or later. encode makes one. If ctx is done first,
// Snapshot fails with the context's cause.
func (s *Snapshots) Snapshot(ctx context.Context, asked time.Time, encode func() []byte) ([]byte,
	error) {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-s.turn }()
	if s.body != nil && !s.begun.Before(asked) {
		return s.body, nil
	}
	wait := time.NewTimer(time.Until(s.next))
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	s.begun = time.Now()
	s.body = encode()
	s.next = s.begun.Add(max(snapshotEvery, snapshotShare*time.Since(s.begun)))
	return s.body, nil
}
