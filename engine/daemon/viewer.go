package daemon

import (
	"context"
	"sync"
	"time"

	"xwarp/engine/daemon/control"
)

// viewer makes the snapshots for the programs of one holder: one at a time, which all who asked before it was
// begun share, at most every snapshotEvery, and for at most 1/snapshotShare of the time.
type viewer struct {
	turn  chan struct{} // of who makes one; guards what follows
	begun time.Time     // the last one
	next  time.Time     // not before
	body  []byte        // its encoding, while somebody waits

	mu      sync.Mutex
	waiting int // programs that asked and have no answer
}

func newViewer() viewer { return viewer{turn: make(chan struct{}, 1)} }

func (u *viewer) enter() {
	u.mu.Lock()
	u.waiting++
	u.mu.Unlock()
}

// leave forgets what nobody waits for any more.
func (u *viewer) leave() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.waiting--; u.waiting == 0 {
		u.body = nil // nobody else has the turn
	}
}

// snapshot returns the encoding of a snapshot that was begun after asked.
func (u *viewer) snapshot(ctx context.Context, asked time.Time, take func() control.Snapshot) (
	[]byte, error) {
	select {
	case u.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-u.turn }()
	return u.since(ctx, asked, take)
}

// since is called by whose turn it is.
func (u *viewer) since(ctx context.Context, asked time.Time, take func() control.Snapshot) ([]byte,
	error) {
	if u.body != nil && !u.begun.Before(asked) {
		return u.body, nil
	}
	wait := time.NewTimer(time.Until(u.next))
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	u.begun = time.Now()
	s := take()
	u.body = control.Marshal(&s)
	u.next = u.begun.Add(max(snapshotEvery, snapshotShare*time.Since(u.begun)))
	return u.body, nil
}

// snapshot answers a program. One is under way to it at a time: it may read slowly, and another one would be
// kept meanwhile.
func (s *session) snapshot(ctx context.Context, _ *control.Request) (any, error) {
	asked := time.Now()
	u := &s.account.viewer
	u.enter()
	defer u.leave()
	select {
	case s.viewing <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	body, err := u.snapshot(ctx, asked, func() control.Snapshot {
		if s.operator {
			return s.d.Snapshot()
		}
		return s.d.view(&s.account.holder)
	})
	if err != nil {
		<-s.viewing
		return nil, err
	}
	return &encoded{body, func() { <-s.viewing }}, nil
}

// encoded is a result that is in JSON already; sent is called when it was sent.
type encoded struct {
	body []byte
	sent func()
}
