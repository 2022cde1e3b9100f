package session

import (
	"context"
	"sync"
	"sync/atomic"

	"xwarp/ddp/rdmap"
	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/device"
	"xwarp/engine/guard"
	"xwarp/engine/internal/core"
	"xwarp/engine/verbs"
)

// cq is a completion queue in shared memory. Workers write completions directly into it.
type cq struct {
	object
	s       *Session
	eng     verbs.CQ
	cqRing          // geometry is guarded by Session.mu, the rest by mu
	next    *cqRing // made by ibv_resize_cq; guarded by Session.mu; nil: none
	channel *control.Channel
	users   int // number of send and receive sides of queue pairs; guarded by Session.mu

	mu      sync.Mutex // also locked by workers
	closed  bool       // the memory must not be accessed any more
	count   atomic.Uint64
	overrun atomic.Bool

	queued atomic.Bool // in signaller.queued
}

func (*cq) String() string { return "completion queue" }

func (c *cq) busy() error {
	return busyIf(c.users > 0, "ibv_destroy_cq: %d queue pairs use the completion queue", c.users)
}

// newCQ creates a completion queue. peer is the program's end of its channel, which the caller owns.
func newCQ(s *Session, g control.Geometry) (c *cq, peer int, err error) {
	r, err := s.newRing(g)
	if err != nil {
		return nil, -1, err
	}
	c = &cq{s: s, cqRing: *r}
	if c.channel, peer, err = control.NewChannel(); err != nil {
		c.mem.Close()
		return nil, -1, err
	}
	c.eng = core.NewSinkCQ(c.push)
	return c, peer, nil
}

// push writes a completion into the ring, unless it is held. It runs on workers. kept is false if the ring was full.
func (c *cq) push(v *verbs.Completion) (kept bool) {
	q, ok := v.QP.UserData().(*qp)
	if !ok || q.discarded.Load() {
		return true
	}
	if d := q.roce.Load(); d != nil && d.intercept(v) {
		return true
	}
	return c.write(q, v)
}

// write writes a completion of q into the ring. The goroutine must have SetPanicOnFault.
func (c *cq) write(q *qp, v *verbs.Completion) (kept bool) {
	if device.HasFailed(v) && !q.failureLogged.Swap(true) {
		device.LogCompletion(c.s.log.With("device", c.s.dev.Name, "qp", q.handle), v)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	defer guard.Recover(func(v any) {
		c.s.failLostPage(c.mem, v)
		c.closed, kept = true, true
	})
	if c.closed {
		return true
	}
	slot, err := c.ring.Next()
	if err != nil {
		c.closed = true
		c.s.Fail(err)
		return true
	}
	if slot == nil {
		c.overrun.Store(true)
		atomic.StoreUint32(c.ring.State(), control.StateOverrun)
	} else {
		control.PutCompletion(slot, q.number, v)
		c.ring.Publish()
		c.ring.WakeConsumer()
		c.count.Add(1)
	}
	solicited := v.Flags&rdmap.Solicited != 0 || v.Status != rdmap.Success || slot == nil
	if control.TakeArmed(c.ring.Armed(), solicited) && !c.queued.Swap(true) {
		c.s.signaller.add(c)
	}
	return slot != nil
}

// close frees the memory. No queue pair may use c any more.
func (c *cq) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.channel.Close()
	c.mem.Close()
}

// signaller signals the completion channels of a session. Workers do not write to channels themselves, because that
// would wake everything that waits for a program's end of a channel on the worker's thread.
type signaller struct {
	mu     sync.Mutex
	queued []*cq
	wake   chan struct{}
}

func (r *signaller) add(c *cq) {
	r.mu.Lock()
	r.queued = append(r.queued, c)
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// signalLoop signals the queued channels until ctx is done.
func (r *signaller) signalLoop(ctx context.Context) {
	for {
		select {
		case <-r.wake:
		case <-ctx.Done():
			return
		}
		r.mu.Lock()
		list := r.queued
		r.queued = nil
		r.mu.Unlock()
		for _, c := range list {
			c.queued.Store(false)
			c.channel.Ring()
		}
	}
}
