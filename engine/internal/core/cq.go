package core

import (
	"context"
	"sync"
	"sync/atomic"

	"xwarp/engine/verbs"
	"xwarp/engine/wake"
)

// CQ is verbs.CQ of the engine. Workers fill it.
type CQ struct {
	fifo     atomic.Pointer[fifo[verbs.Completion]] // filled by workers
	old      atomic.Pointer[fifo[verbs.Completion]] // fifo before the last Resize, until it is drained; nil: none
	settled  atomic.Bool                            // no worker can push into old any more
	resize   sync.Mutex
	dev      *Device // nil for a sink
	overrun  atomic.Bool
	closed   atomic.Bool
	users    atomic.Int32 // queue pairs; one that uses c for sends and receives counts twice
	armed    atomic.Bool
	changed  wake.Flag // makes the goroutines in Wait poll again
	wakeFunc func()    // method value of wake, made once so that push need not allocate it
	sink     Sink      // if set, it gets the completions instead of fifo
}

// CreateCQ implements verbs.Device.
func (d *Device) CreateCQ(depth int) (verbs.CQ, error) {
	c, err := newCQ(depth)
	if err == nil && d.isClosed() {
		err = verbs.ErrClosed
	}
	if err != nil {
		return nil, verbs.Wrap("ibv_create_cq", err)
	}
	c.dev = d
	return c, nil
}

func newCQ(depth int) (*CQ, error) {
	r, err := newFIFO[verbs.Completion](depth)
	if err != nil {
		return nil, err
	}
	c := &CQ{changed: wake.New()}
	c.wakeFunc = c.changed.Set
	c.fifo.Store(r)
	return c, nil
}

// Sink takes a completion on the thread of the worker that made it. It must not block or call the engine, except
// on.Notify; *v is valid during the call. If it returns false, the completion is lost and the queue pair fails as after
// an overrun. Several workers may call it concurrently.
type Sink func(v *verbs.Completion, on *Shard) (taken bool)

// NewSinkCQ returns a completion queue that passes each completion to sink instead of keeping it for Poll.
func NewSinkCQ(sink Sink) *CQ {
	c, _ := newCQ(1) // no error: a depth of one is valid
	c.sink = sink
	return c
}

// Close implements verbs.CQ.
func (c *CQ) Close() error {
	if c.users.Load() > 0 {
		return verbs.Wrap("ibv_destroy_cq", verbs.ErrBusy)
	}
	c.closed.Store(true)
	c.changed.Set()
	return nil
}

// Poll implements verbs.CQ. A goroutine that calls it in a loop needs a CPU besides the worker's. If they share one,
// each waits for the scheduler to preempt the other, and a message takes 25 times as long as one answered by
// xdp.Config.Consumer, or 100 times and more with time.Sleep or runtime.Gosched in the loop. Without a spare CPU use
// Consumer or Wait.
func (c *CQ) Poll(dst []verbs.Completion) (n int, err error) {
	if n = c.pop(dst); n > 0 || len(dst) == 0 {
		return n, nil
	}
	switch {
	case c.closed.Load():
		return 0, verbs.ErrClosed
	case c.overrun.Load():
		return 0, verbs.ErrCQOverrun
	case c.dev != nil && c.dev.closeDone.Load():
		if n = c.pop(dst); n == 0 { // the last completions came before closeDone was set
			err = verbs.ErrClosed
		}
	}
	return n, err
}

func (c *CQ) pop(dst []verbs.Completion) (n int) {
	ring := c.fifo.Load() // loaded before old: if it is the new fifo, Resize has stored the former one in old
	if c.old.Load() != nil {
		if n = c.popOld(dst); c.old.Load() != nil {
			return n
		}
	}
	for n < len(dst) && ring.Pop(&dst[n]) {
		n++
	}
	return n
}

// popOld takes completions from the fifo that was in use before Resize, and drops that fifo once it is empty.
func (c *CQ) popOld(dst []verbs.Completion) (n int) {
	before := c.old.Load()
	settled := c.settled.Load() // read after old: the value belongs to it, or the swap below fails
	for before != nil && n < len(dst) {
		if before.Pop(&dst[n]) {
			n++
			continue
		}
		if settled {
			c.old.CompareAndSwap(before, nil)
		}
		break
	}
	return n
}

// Resize implements verbs.CQ.
func (c *CQ) Resize(depth int) error { return verbs.Wrap("ibv_resize_cq", c.resizeTo(depth)) }

func (c *CQ) resizeTo(depth int) error {
	c.resize.Lock()
	defer c.resize.Unlock()
	next, err := newFIFO[verbs.Completion](depth)
	switch {
	case err != nil:
		return err
	case c.sink != nil:
		return verbs.ErrInvalid
	case c.closed.Load():
		return verbs.ErrClosed
	}
	if b := c.old.Load(); b != nil && b.Len() > 0 {
		return verbs.ErrBusy
	}
	c.settled.Store(false)
	c.old.Store(c.fifo.Load())
	c.fifo.Store(next)
	err = c.dev.onEach(func(*Shard) error { return nil }) // each worker has finished its push into the old fifo
	c.settled.Store(true)
	c.changed.Set()
	return err
}

// Wait implements verbs.CQ.
func (c *CQ) Wait(ctx context.Context, dst []verbs.Completion) (int, error) {
	var ended chan struct{}
	if c.dev != nil {
		ended = c.dev.ended
	}
	for {
		if n, err := c.Poll(dst); n > 0 || err != nil {
			return n, err
		}
		c.armed.Store(true)
		if n, err := c.Poll(dst); n > 0 || err != nil {
			c.armed.Store(false)
			return n, err
		}
		select {
		case <-c.changed:
		case <-ended:
		case <-ctx.Done():
			c.armed.Store(false)
			return 0, context.Cause(ctx)
		}
	}
}

// push adds *v, on the thread of s. It returns false when *v is lost, because the queue is full or the sink refused it.
func (c *CQ) push(v *verbs.Completion, s *Shard) bool {
	if c.sink != nil {
		return c.sink(v, s)
	}
	ok := c.fifo.Load().Push(v)
	if !ok {
		c.overrun.Store(true)
	}
	if c.armed.Load() && c.armed.CompareAndSwap(true, false) {
		s.Notify(c.wakeFunc)
	}
	return ok
}
