package core

import (
	"errors"
	"testing"
	"time"

	"xwarp/engine/iwarp"
	"xwarp/engine/verbs"
)

// TestCloseWhileConnecting closes a queue pair while Dial has no worker for it, as on a socket that the kernel still
// connects, or between two attempts. It must not get a connection any more, and leave nothing in its domain.
func TestCloseWhileConnecting(t *testing.T) {
	attach := func(q *QP, c *Conn) error { return q.attach(c) }
	for _, tc := range []struct {
		name         string
		before, then func(q *QP, c *Conn) error
	}{
		{"connected then", nil, attach},
		{"given up then", nil, func(q *QP, c *Conn) error {
			q.GiveUp(verbs.ErrRejected)
			return q.attach(c)
		}},
		{"between attempts", func(q *QP, c *Conn) error {
			err := q.attach(c)
			q.release()
			return err
		}, attach},
	} {
		t.Run(tc.name, func(t *testing.T) {
			q, c, _ := lifeOf(t, lifeIdle)
			if tc.before != nil {
				if err := tc.before(q, c); err != nil {
					t.Fatal(err)
				}
			}
			if err := q.Close(); err != nil {
				t.Fatal(err)
			}
			if err := tc.then(q, c); !errors.Is(err, verbs.ErrClosed) {
				t.Errorf("the connection: %v", err)
			}
			if err := q.pd.Close(); err != nil {
				t.Errorf("the domain: %v", err)
			}
		})
	}
}

// TestCloseTwiceAtOnce: a second, concurrent Close of a queue pair returns only when the first is done.
func TestCloseTwiceAtOnce(t *testing.T) {
	q, _, cq := lifeOf(t, lifeGone)
	q.shard.Store(NewShard(&asleep{})) // which does not respond yet
	first, second := make(chan struct{}), make(chan struct{})
	go func() { q.Close(); close(first) }()
	for !q.closed.Load() {
		time.Sleep(time.Millisecond)
	}
	go func() { q.Close(); close(second) }()
	select {
	case <-second:
		t.Error("Close returns while the queue pair is in use")
	case <-time.After(20 * time.Millisecond):
	}
	for !q.hasReached(lifeFreed) {
		q.shard.Load().RunPosted()
	}
	<-first
	<-second
	if err := cq.Close(); err != nil {
		t.Error(err)
	}
}

// asleep is a worker that never runs by itself: the test runs its shard.
type asleep struct{}

func (*asleep) Wake()           {}
func (*asleep) Notify(f func()) { f() }

// TestDoorbellFollows: a queue pair moves to another worker after its doorbell was rung. The first worker must not
// touch the queue pair, but ring on the other worker. If the queue pair has no worker then, nothing happens.
func TestDoorbellFollows(t *testing.T) {
	d := newDevice(Options{})
	for range 2 {
		d.addShard(NewShard(&asleep{}))
	}
	from, to := d.shards[0], d.shards[1]
	q := &QP{dev: d, iw: &iwarp.Conn{}} // its iwarp.Conn must not be woken
	q.doorbell.Target = qpDoorbell{q}
	q.life.Store(uint32(lifeAttached))
	for _, owner := range []*Shard{nil, to} {
		from.Ring(&q.doorbell)
		q.shard.Store(owner)
		from.RunPosted()
		if got := to.HasPosted(); got != (owner == to) {
			t.Errorf("owner %p: the other worker has work: %v", owner, got)
		}
	}
}
