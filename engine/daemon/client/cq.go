package client

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"xwarp/ddp/rdmap"
	"xwarp/engine"
	"xwarp/engine/daemon/control"
	"xwarp/engine/queue"
)

// Types of the verbs that are the engine's own.
type (
	SendWR = engine.SendWR
	RecvWR = engine.RecvWR
	SGE    = engine.SGE
	Status = engine.Status
	WROp   = engine.WROp
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

// ErrCQOverrun is what a completion queue returns after it was too small once.
var ErrCQOverrun = engine.ErrCQOverrun

// CQ is a completion queue. The daemon fills it; any goroutine may poll it.
type CQ struct {
	depth int
	bell  chan struct{}

	mu      sync.Mutex
	dev     *Device // nil until a queue pair uses the queue
	handle  control.Handle
	ring    *control.Consumer
	mem     []byte
	channel *control.ChannelReader
	leaving []*QP // closed, perhaps with completions in the ring
}

// NewCQ returns a completion queue for at least depth completions. It must have room for every work request that may
// be outstanding on the queue pairs that use it.
func NewCQ(depth int) (*CQ, error) {
	if depth < 1 || depth > control.MaxCQDepth || depth > queue.MaxDepth {
		return nil, fmt.Errorf("queue depth %d: want 1 to %d", depth, control.MaxCQDepth)
	}
	return &CQ{depth: depth, bell: make(chan struct{}, 1)}, nil
}

// bind makes c a queue of d when the first queue pair comes.
func (c *CQ) bind(d *Device) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dev == d {
		return nil
	}
	if c.dev != nil {
		return fmt.Errorf("ibv_create_qp: the completion queue is of another device")
	}
	var r control.CreateCQResult
	files, err := d.call(context.Background(), control.OpCreateCQ,
		control.CreateCQArgs{Depth: c.depth}, &r)
	if err != nil {
		return err
	}
	if len(files) != 2 {
		control.CloseAll(files)
		return fmt.Errorf("%w: create_cq with %d descriptors", control.ErrFrame, len(files))
	}
	mem, err := mapShared(files[0], int(r.Ring.Offset)+r.Ring.Len())
	if err != nil {
		unix.Close(files[1])
		return err
	}
	if c.channel, err = control.OpenChannel(files[1]); err != nil {
		return err
	}
	if c.ring, err = control.NewConsumer(mem, r.Ring); err != nil {
		return err
	}
	c.mem, c.handle, c.dev = mem, r.Handle, d
	go c.listen(d)
	return nil
}

// listen turns the daemon's signals into rings of the bell.
func (c *CQ) listen(d *Device) {
	go func() {
		<-d.gone
		c.channel.Close()
	}()
	for {
		c.ringBell()
		if c.channel.Wait() != nil {
			c.ringBell()
			return
		}
	}
}

func (c *CQ) ringBell() {
	select {
	case c.bell <- struct{}{}:
	default:
	}
}

// Poll moves up to len(dst) completions into dst and returns how many. It never blocks.
func (c *CQ) Poll(dst []Completion) (n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dev == nil {
		return 0, nil
	}
	for n < len(dst) {
		slot, err := c.ring.Next()
		if err != nil {
			return n, err
		}
		if slot == nil {
			break
		}
		var e control.Completion
		e.Parse(slot)
		c.ring.Release()
		dst[n] = Completion{ID: e.ID, QP: c.dev.qp(e.QP), Op: e.Op, Status: e.Status,
			Flags: e.Flags, ByteLen: e.ByteLen, Imm: e.Imm, Invalidated: e.Invalidated}
		n++
	}
	if n > 0 || len(dst) == 0 {
		return n, nil
	}
	for _, q := range c.leaving {
		q.forget()
	}
	c.leaving = nil
	if atomic.LoadUint32(c.ring.State()) == control.StateOverrun {
		return 0, ErrCQOverrun
	}
	return 0, c.dev.failed()
}

// Wait is Poll that blocks until there is at least one completion or ctx is done.
func (c *CQ) Wait(ctx context.Context, dst []Completion) (int, error) {
	for {
		if n, err := c.Poll(dst); n > 0 || err != nil {
			return n, err
		}
		c.arm()
		if n, err := c.Poll(dst); n > 0 || err != nil {
			return n, err
		}
		select {
		case <-c.bell:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

func (c *CQ) arm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dev != nil {
		control.Arm(c.ring.Armed())
	}
}

// Close gives the queue back to the daemon; no queue pair may use it any more. Closing the device does it too.
func (c *CQ) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dev == nil {
		return nil
	}
	err := c.dev.ask(control.OpDestroyCQ, control.Object{Handle: c.handle}, nil)
	if err == nil {
		c.channel.Close()
		err = unix.Munmap(c.mem)
		c.dev, c.ring, c.mem = nil, nil, nil
	}
	return err
}
