package session

import (
	"xwarp/ddp/rdmap"
	"xwarp/engine/verbs"
)

// connHooks is what the session asks of a queue pair that has another way to connect than rdma_cm. Its methods may be
// called from any goroutine.
type connHooks interface {
	// gate says what may be taken from the rings. waiting reports whether the send ring has entries.
	gate(waiting bool) (recvs, sends bool)
	// splitWrite completes a Write with immediate data, which the engine gets as two work requests.
	splitWrite(write, imm *rdmap.SendWR)
	// intercept changes a completion, or holds it. It runs on workers.
	intercept(v *verbs.Completion) (held bool)
	// onEnd is called when the connection has ended with err. It returns false if the program must be notified.
	onEnd(err error) (quiet bool)
	// close ends the attempts to connect.
	close()
}

// setHooks sets the hooks of q, and returns a function that removes them again.
func (q *qp) setHooks(h connHooks) (undo func()) {
	p := &h
	q.hooked.Store(p)
	return func() { q.hooked.CompareAndSwap(p, nil) }
}

// hooks returns the hooks of q, or nil if rdma_cm connects it.
func (q *qp) hooks() connHooks {
	if p := q.hooked.Load(); p != nil {
		return *p
	}
	return nil
}
