package transfer

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// store returns when the file has c on the disk, or a content that came after it. It waits for the gets that
// read the file's mapping, which the server hurries; new ones read c itself, so that none comes in between.
func (r *Region) store(c *content) error {
	if err := r.storing.Acquire(context.Background(), 1); err != nil {
		return err
	}
	defer r.storing.Release(1)
	r.mu.Lock()
	late := r.stored.serial >= c.serial
	r.mu.Unlock()
	if late {
		return nil
	}
	r.drain()
	last := r.hold()
	if err := r.write(last); err != nil {
		err = errors.Join(err, r.release(last))
		return fmt.Errorf("the server has the content in memory, but not in its file: %w", err)
	}
	now := newContent(r.disk, last.length)
	now.filled, now.inFile, now.serial = true, true, last.serial
	now.know(last.whole())
	r.mu.Lock()
	r.stored = now
	swap := r.now == last
	if swap {
		r.replace(now)
	} else {
		now.holders = 0
	}
	r.mu.Unlock()
	var err error
	if swap {
		err = r.release(last)
	}
	return errors.Join(err, r.release(last))
}

// drain waits until no get reads the mapping of the file.
func (r *Region) drain() {
	r.mu.Lock()
	free := r.stored.holders == 0
	drained := make(chan struct{})
	if !free {
		r.drained = drained
	}
	r.mu.Unlock()
	if !free {
		r.pressed.Store(true)
		<-drained
		r.pressed.Store(false)
	}
}

func (r *Region) write(c *content) error {
	if _, err := r.file.WriteAt(c.mem[:c.length], 0); err != nil {
		return err
	}
	if err := unix.Fdatasync(int(r.file.Fd())); err != nil {
		return fmt.Errorf("writing %s to disk: %w", r.file.Name(), err)
	}
	return nil
}
