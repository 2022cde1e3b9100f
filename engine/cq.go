package engine

import (
	"context"
	"errors"
	"sync/atomic"

	"xwarp/ddp/rdmap"
	"xwarp/engine/queue"
)

// Types of the verbs that the engine passes through.
type (
	SendWR = rdmap.SendWR
	RecvWR = rdmap.RecvWR
	SGE    = rdmap.SGE
	Status = rdmap.Status
	WROp   = rdmap.WROp
)

// Completion is the end of one work request.
type Completion struct {
	ID          uint64 // of the work request
	QP          *QP
	Op          WROp // rdmap.WRRecv for a receive
	Status      Status
	Flags       rdmap.CompletionFlags
	ByteLen     uint32 // octets received, read, written or sent; 0 unless Status is SUCCESS
	Imm         [rdmap.ImmLen]byte
	Invalidated uint32 // STag, when Flags has rdmap.WithInvalidate
}

// ErrCQOverrun is what a completion queue returns after it was too small once: completions are lost, and the
// queue pairs that lost one are in error.
var ErrCQOverrun = errors.New("IBV_EVENT_CQ_ERR: completion queue overrun; make it deeper or " +
	"poll it sooner")

// CQ is a completion queue. Workers fill it; any goroutine may poll it.
type CQ struct {
	ring    *queue.Ring[Completion]
	overrun atomic.Bool
	armed   atomic.Bool
	bell    chan struct{}
	sink    func(*Completion) bool // takes the completions instead of the ring, when not nil
}

// NewCQ returns a completion queue for at least depth completions. It must have room for every work request that may
// be outstanding on the queue pairs that use it.
func NewCQ(depth int) (*CQ, error) {
	r, err := queue.NewRing[Completion](depth)
	if err != nil {
		return nil, err
	}
	return &CQ{ring: r, bell: make(chan struct{}, 1)}, nil
}

// Poll moves up to len(dst) completions into dst and returns how many. It never blocks. A goroutine that
// calls it in a loop needs a processor beside the worker's: where they share one, each waits for the
// scheduler to stop the other, and a message takes 25 times as long as one that XDPConfig.Consumer answers,
// 100 times and more with time.Sleep or runtime.Gosched in the loop. Without a processor to spare use
// Consumer, or Wait.
func (c *CQ) Poll(dst []Completion) (n int, err error) {
	for n < len(dst) && c.ring.Pop(&dst[n]) {
		n++
	}
	if n == 0 && c.overrun.Load() {
		return 0, ErrCQOverrun
	}
	return n, nil
}

// Wait is Poll that blocks until there is at least one completion or ctx is done.
func (c *CQ) Wait(ctx context.Context, dst []Completion) (int, error) {
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
		case <-c.bell:
		case <-ctx.Done():
			c.armed.Store(false)
			return 0, context.Cause(ctx)
		}
	}
}

// push adds *v on a worker's thread; false means that it is lost.
func (c *CQ) push(v *Completion) bool {
	if c.sink != nil {
		return c.sink(v)
	}
	ok := c.ring.Push(v)
	if !ok {
		c.overrun.Store(true)
	}
	if c.armed.Load() && c.armed.CompareAndSwap(true, false) {
		select {
		case c.bell <- struct{}{}:
		default:
		}
	}
	return ok
}
