package daemon

import (
	"sync"
	"sync/atomic"

	"xwarp/engine"
	"xwarp/engine/control"
)

// cq is a completion queue in shared memory. Workers write completions straight into it.
type cq struct {
	handle   control.Handle
	s        *session
	eng      *engine.CQ
	geometry control.Geometry
	mem      *control.Memory
	signal   *control.Signal
	users    int // queue pair sides, under the session's mutex

	mu    sync.Mutex // workers
	ring  *control.Producer
	dead  bool // nothing may touch the memory any more
	count atomic.Uint64
	over  atomic.Bool

	kick  chan struct{} // has the ringer signal
	ended chan struct{} // closed when the ringer ended
}

func newCQ(s *session, g control.Geometry) (c *cq, err error) {
	c = &cq{s: s, geometry: g, kick: make(chan struct{}, 1), ended: make(chan struct{})}
	if c.mem, err = control.NewMemory("xwarp-cq", g.Len()); err != nil {
		return nil, err
	}
	if c.ring, err = control.NewProducer(c.mem.Mem, g); err != nil {
		c.mem.Close()
		return nil, err
	}
	if c.signal, err = control.NewSignal(); err != nil {
		c.mem.Close()
		return nil, err
	}
	c.eng = engine.NewSinkCQ(c.take)
	go c.ringing()
	return c, nil
}

// take puts a completion into the ring. It runs on workers.
func (c *cq) take(v *engine.Completion) bool {
	q, ok := v.QP.Context().(*qp)
	if !ok {
		return true
	}
	if failed(v) && !q.failed.Swap(true) {
		logCompletion(c.s.log.With("device", c.s.dev.name, "qp", q.handle), v)
	}
	e := control.Completion{
		ID: v.ID, QP: q.handle, Op: v.Op, Status: v.Status, Flags: v.Flags, ByteLen: v.ByteLen, Imm: v.Imm, Invalidated: v.Invalidated,
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return true
	}
	slot, err := c.ring.Next()
	if err != nil {
		c.dead = true
		c.s.fail(err)
		return true
	}
	if slot == nil {
		c.over.Store(true)
		atomic.StoreUint32(c.ring.State(), control.StateOverrun)
	} else {
		e.Put(slot)
		c.ring.Publish()
		c.count.Add(1)
	}
	if control.Take(c.ring.Armed()) {
		select {
		case c.kick <- struct{}{}:
		default:
		}
	}
	return slot != nil
}

// ringing signals the client. A client can make that block; then it blocks here, where nobody else waits.
func (c *cq) ringing() {
	defer close(c.ended)
	for range c.kick {
		c.signal.Ring()
	}
}

// close gives the memory back. No queue pair may use c any more.
func (c *cq) close() {
	c.mu.Lock()
	c.dead = true
	c.mu.Unlock()
	close(c.kick)
	for waiting := true; waiting; {
		select {
		case <-c.ended:
			waiting = false
		default:
			c.signal.Clear() // in case that the client made Ring block
			pause()
		}
	}
	c.signal.Close()
	c.mem.Close()
}
