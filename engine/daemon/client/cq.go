package client

import (
	"context"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"xwarp/engine/daemon/control"
	"xwarp/engine/verbs"
	"xwarp/engine/wake"
)

// CQ is verbs.CQ of a daemon.
type CQ struct {
	object
	bell wake.Flag // set when Wait must poll again

	mu      sync.Mutex
	ring    *control.Consumer // nil once closed
	mem     []byte
	channel *control.ChannelReader
	left    []verbs.Completion // completions that Resize found in the old ring
	leaving []*QP              // closed queue pairs that may still have completions in the ring
}

// CreateCQ implements verbs.Device.
func (d *Device) CreateCQ(depth int) (verbs.CQ, error) {
	var r control.CreateCQResult
	files, err := d.open(context.Background(), control.OpCreateCQ,
		control.CreateCQArgs{Depth: depth}, &r, 2)
	if err != nil {
		return nil, err
	}
	c := &CQ{object: object{dev: d, handle: r.Handle}, bell: wake.New()}
	if c.mem, err = mapShared(files[0], int(r.Ring.Offset)+r.Ring.Len()); err != nil {
		unix.Close(files[1])
		return nil, err
	}
	if c.channel, err = control.OpenChannel(files[1]); err != nil {
		return nil, err
	}
	if c.ring, err = control.NewConsumer(c.mem, r.Ring); err != nil {
		return nil, err
	}
	go c.listen()
	return c, nil
}

// listen forwards the daemon's signals to the bell.
func (c *CQ) listen() {
	go func() {
		<-c.dev.gone
		c.channel.Close()
	}()
	for {
		c.bell.Set()
		if c.channel.Wait() != nil {
			c.bell.Set()
			return
		}
	}
}

// Poll implements verbs.CQ.
func (c *CQ) Poll(dst []verbs.Completion) (n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ring == nil {
		return 0, verbs.ErrClosed
	}
	for n < len(dst) {
		ok, err := c.next(&dst[n])
		if err != nil {
			return n, err
		}
		if !ok {
			break
		}
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
		return 0, verbs.ErrCQOverrun
	}
	return 0, c.dev.failed()
}

// next removes the oldest completion, if any. It is called with mu held.
func (c *CQ) next(v *verbs.Completion) (ok bool, err error) {
	if len(c.left) > 0 {
		*v, c.left = c.left[0], c.left[1:]
		return true, nil
	}
	slot, err := c.ring.Next()
	if slot == nil || err != nil {
		return false, err
	}
	qpn, completion := control.ParseCompletion(slot)
	*v = verbs.Completion{Completion: completion}
	c.ring.Release()
	c.dev.mu.Lock()
	if q := c.dev.number[qpn]; q != nil {
		v.QP = q
	}
	c.dev.mu.Unlock()
	return true, nil
}

// Wait implements verbs.CQ.
func (c *CQ) Wait(ctx context.Context, dst []verbs.Completion) (int, error) {
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
	if c.ring != nil {
		control.Arm(c.ring.Armed())
	}
}

// Close implements verbs.CQ. Once the device is closed, it fails with the device's error.
func (c *CQ) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ring == nil {
		return nil
	}
	err := c.ask(control.OpDestroyCQ, nil)
	if err == nil {
		c.channel.Close()
		err = unix.Munmap(c.mem)
		c.ring, c.mem = nil, nil
	}
	return err
}
