package client

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"xwarp/engine/daemon/control"
	"xwarp/engine/verbs"
)

// Resize implements verbs.CQ.
func (c *CQ) Resize(depth int) error {
	if depth < 1 || depth > control.MaxCQDepth {
		return verbs.Wrap("ibv_resize_cq", fmt.Errorf("%w: depth %d, want 1 to %d",
			verbs.ErrInvalid, depth, control.MaxCQDepth))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ring == nil {
		return verbs.Wrap("ibv_resize_cq", verbs.ErrClosed)
	}
	var r control.ResizeCQResult
	args := control.ResizeCQArgs{Handle: c.handle, Depth: depth}
	files, err := c.dev.open(context.Background(), control.OpResizeCQ, args, &r, 1)
	if err != nil {
		return err
	}
	mem, err := mapShared(files[0], int(r.Ring.Offset)+r.Ring.Len())
	if err != nil {
		return err
	}
	ring, err := control.NewConsumer(mem, r.Ring)
	if err == nil {
		args.Depth = 0
		err = c.dev.ask(control.OpResizeCQ, args, nil)
	}
	if err == nil { // the daemon no longer writes to the old ring
		err = c.save()
	}
	if err != nil {
		unix.Munmap(mem)
		return err
	}
	err = unix.Munmap(c.mem)
	c.ring, c.mem = ring, mem
	return err
}

// save moves the completions that are still in the ring to c.left.
func (c *CQ) save() error {
	var left []verbs.Completion
	for {
		var v verbs.Completion
		switch ok, err := c.next(&v); {
		case err != nil:
			return err
		case !ok:
			c.left = left
			return nil
		}
		left = append(left, v)
	}
}
