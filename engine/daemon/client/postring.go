package client

import (
	"fmt"
	"sync"

	"xwarp/engine/daemon/control"
	"xwarp/engine/verbs"
)

// postRing is a work queue in shared memory. Any goroutine may post.
type postRing struct {
	dev  *Device // nil: no ring
	bell uint32

	mu     sync.Mutex
	ring   *control.Producer
	closed bool
}

func (r *postRing) open(d *Device, mem []byte, g control.Geometry, bell uint32) (err error) {
	if bell >= control.MaxBells {
		return fmt.Errorf("%w: doorbell %d", control.ErrFrame, bell)
	}
	r.dev, r.bell = d, bell
	r.ring, err = control.NewProducer(mem, g)
	return err
}

// setClosed(true) waits for goroutines that post, and blocks posting until setClosed(false). It must precede the
// request to destroy the queue: right after that, the bell may belong to another queue whose rings are not mapped yet.
func (r *postRing) setClosed(closed bool) {
	r.mu.Lock()
	r.closed = closed
	r.mu.Unlock()
}

// post lets put fill the next slot.
func (r *postRing) post(put func([]byte)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return verbs.ErrClosed
	case r.dev.over.Load():
		return r.dev.failed()
	}
	slot, err := r.ring.Next()
	switch {
	case err != nil:
		return err
	case slot == nil:
		return verbs.ErrQueueFull
	}
	put(slot)
	r.ring.Publish()
	r.dev.wake(r.bell)
	return nil
}

// postRecv posts a receive of at most sge pieces.
func (r *postRing) postRecv(sge int, wr *verbs.RecvWR) error {
	if len(wr.SGL) > sge {
		return fmt.Errorf("%w: %d SGEs; the queue allows %d", verbs.ErrInvalid, len(wr.SGL), sge)
	}
	return r.post(func(b []byte) { control.PutRecv(b, wr) })
}
