package session

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"xwarp/ddp/rdmap"
	"xwarp/engine/budget"
	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/device"
	"xwarp/engine/guard"
	"xwarp/engine/internal/core"
	"xwarp/engine/verbs"
	"xwarp/engine/wake"
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
	wakes  atomic.Bool // the signaller is to wake consumers that sleep on the ring
	rings  atomic.Bool // the signaller is to signal the channel
	fails  atomic.Bool // the signaller is to report the overrun
}

func (*cq) String() string { return "completion queue" }

func (c *cq) numbers() (kind, object string) {
	return "cq", fmt.Sprintf("cqn %d cqe %d", c.handle, c.geometry.Slots)
}

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

// push writes a completion into the ring, unless roceConn.intercept holds it, or its queue pair was reset. It runs on
// workers. kept is false if the completion was lost because the ring was full.
func (c *cq) push(v *verbs.Completion, on *core.Shard) (kept bool) {
	q, ok := v.QP.UserData().(*qp)
	if !ok || q.discarded.Load() {
		return true
	}
	if h := q.roce.Load(); h != nil && h.intercept(v) {
		return true
	}
	return c.write(q, v, on)
}

// write writes a completion of q into the ring. on is the shard of the calling worker, or nil outside workers. The
// goroutine must have SetPanicOnFault.
func (c *cq) write(q *qp, v *verbs.Completion, on *core.Shard) (kept bool) {
	if device.HasFailed(v) && !q.failureLogged.Swap(true) {
		device.LogCompletion(q.Logger(), v)
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
	fails := slot == nil && !c.overrun.Swap(true)
	if slot == nil {
		atomic.StoreUint32(c.ring.State(), control.StateOverrun)
	} else {
		control.PutCompletion(slot, q.number, &v.Completion)
		c.ring.Publish()
		c.count.Add(1)
	}
	wakes := control.Disarm(c.ring.Waits())
	solicited := v.Flags&rdmap.Solicited != 0 || v.Status != rdmap.Success || slot == nil
	rings := control.TakeArmed(c.ring.Armed(), solicited)
	if wakes {
		c.wakes.Store(true)
	}
	if rings {
		c.rings.Store(true)
	}
	if fails {
		c.fails.Store(true)
	}
	if (wakes || rings || fails) && !c.queued.Swap(true) {
		c.s.signaller.add(c, on)
	}
	return slot != nil
}

// signal wakes the consumers that sleep on the ring if c.wakes is set, and signals the channel if c.rings is set. It
// clears both.
func (c *cq) signal() {
	c.queued.Store(false)
	if c.wakes.Swap(false) {
		c.mu.Lock()
		var waits *uint32
		if !c.closed {
			waits = c.ring.Waits()
		}
		c.mu.Unlock()
		if waits != nil {
			control.Wake(waits)
		}
	}
	if c.rings.Swap(false) {
		c.channel.Ring()
	}
}

// close frees the memory. No queue pair may use c any more.
func (c *cq) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.channel.Close()
	c.mem.Close()
}

// signaller wakes the consumers of a session's completion queues. Workers do not: a program chooses how long its
// wake-ups take, by the number of files that wait for its end of a channel, and by sleepers in the kernel's list of its
// futex.
type signaller struct {
	mu       sync.Mutex
	queued   []*cq
	wake     wake.Flag
	wakeFunc func() // the method value wake.Set, made once because making it allocates
}

func (r *signaller) init() {
	r.wake = wake.New()
	r.wakeFunc = r.wake.Set
}

// add queues c. on is the shard of the calling worker, or nil.
func (r *signaller) add(c *cq, on *core.Shard) {
	r.mu.Lock()
	r.queued = append(r.queued, c)
	first := len(r.queued) == 1
	r.mu.Unlock()
	if first {
		on.Notify(r.wakeFunc)
	}
}

// signalLoop signals the queued completion queues until ctx is done. It takes turns with the other sessions of the
// account, so that sessions do not multiply the CPU time of wake-ups.
func (r *signaller) signalLoop(ctx context.Context, account *budget.Account) {
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
			account.Enter(budget.SignalTurn)
			c.signal()
			account.Leave(budget.SignalTurn)
			if c.fails.Swap(false) {
				c.s.sendEvent(&control.Event{Event: control.EventCQError, CQ: c.handle})
			}
		}
	}
}
