package transfer

import (
	"context"
	"sync"
	"time"

	"xwarp/engine/plain"
)

// watch checks the progress that a peer must make while others wait for its connection or the name of its file. Beats
// do not count.
type watch struct {
	remaining uint64        // maximum number of bytes that count as progress
	contended func() bool   // reports whether others wait
	sharers   func() uint64 // connections that share the work; nil: one

	mu          sync.Mutex // for the goroutine of the Beats and the one that receives
	end         func(error)
	started     bool
	first, last uint64 // payload at the first tick, and progress at the start of the current idle time
	ticks       int    // ticks of the current idle time, in all of which others waited
}

// receiveMoving is receive, but it also ends when the peer makes less progress than w requires.
func (l *link) receiveMoving(ctx context.Context, w *watch) (Message, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w.mu.Lock()
	w.end = cancel
	w.mu.Unlock()
	l.watched.Store(w)
	defer l.watched.Store(nil)
	return l.receive(ctx)
}

// tick updates w with the payload moved so far, beatsPerIdle times per idle time.
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
		w.end(refuse(CodeYield, "others wait, and this client moved only %s in %v",
			plain.Size(moved), idle))
	}
}
