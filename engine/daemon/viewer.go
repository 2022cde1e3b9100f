package daemon

import (
	"context"
	"sync"
	"time"

	"xwarp/engine/daemon/control"
)

// viewers make the snapshots that programs ask for.
type viewers struct {
	mu sync.Mutex
	of map[audience]*viewer
}

// audience is who sees the same: a user or a tenant, or the operator, whose user does not count.
type audience struct {
	operator bool
	holder
}

func (s *session) audience() audience {
	if s.operator {
		return audience{operator: true}
	}
	return audience{holder: s.account.holder}
}

// viewer makes those of one user: one at a time, which all who asked before it was begun share, at most every
// snapshotEvery, and for no more of the time than one part in snapshotShare.
type viewer struct {
	turn  chan struct{} // of who makes one; guards what follows
	begun time.Time     // the last one
	next  time.Time     // not before
	body  []byte        // its encoding, while somebody waits

	waiting int // who asked and has no answer; under the mutex of viewers
}

func (v *viewers) enter(a audience) *viewer {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.of == nil {
		v.of = map[audience]*viewer{}
	}
	u := v.of[a]
	if u == nil {
		u = &viewer{turn: make(chan struct{}, 1)}
		v.of[a] = u
	}
	u.waiting++
	return u
}

// leave forgets what nobody waits for any more.
func (v *viewers) leave(u *viewer) {
	v.mu.Lock()
	defer v.mu.Unlock()
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
	u := s.d.viewers.enter(s.audience())
	defer s.d.viewers.leave(u)
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
