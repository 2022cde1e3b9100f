package transfer

import (
	"context"
	"sync"
	"time"
)

// watch is the least progress that a peer must make while others wait for memory that it has. Beats do not count.
type watch struct {
	remaining uint64          // bytes that can still be of use; more than these are no progress
	contended func() bool     // others wait
	sharers   func() uint64   // connections that do it together; nil: one
	until     context.Context // ends when the peer has no time left; nil: never

	mu          sync.Mutex // of the goroutine of the Beats, and of the one that receives
	end         func(error)
	started     bool
	first, last uint64 // payload at the beginning, and at the start of the idle time that runs
	ticks       int    // of it, with others waiting
}

// receiveMoving is receive, but it ends when w does, or when the peer does less than w asks of it.
func (l *link) receiveMoving(ctx context.Context, w *watch) (Message, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if w.until != nil {
		defer context.AfterFunc(w.until, func() { cancel(context.Cause(w.until)) })()
	}
	w.mu.Lock()
	w.end = cancel
	w.mu.Unlock()
	l.watched.Store(w)
	defer l.watched.Store(nil)
	return l.receive(ctx)
}

// tick looks at w with the payload that the connection has moved so far, beatsPerIdle times in the idle time.
func (w *watch) tick(payload uint64, idle time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.started {
		w.started, w.first = true, payload
	}
	progress := min(payload-w.first, w.remaining)
	if w.ticks == 0 {
		w.last = progress
	}
	if !w.contended() {
		w.ticks = 0
		return
	}
	if w.ticks++; w.ticks <= beatsPerIdle {
		return
	}
	w.ticks = 0
	must := uint64(idle.Seconds() * minRate)
	if w.sharers != nil {
		must /= w.sharers()
	}
	if moved := progress - w.last; moved < must {
		w.end(refuse(CodeYield, "others wait, and this client moved only %d bytes in %v", moved,
			idle))
	}
}
