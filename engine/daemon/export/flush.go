package export

import (
	"slices"
	"sync"
)

// flushPiece is the maximum number of bytes per msync, so that others wait for one piece and not for the flush of a
// large region.
const flushPiece = 64 << 20

// flusher runs the flushes of an export, one msync at a time. Waiting flushes take turns, and each msync counts for all
// that were waiting when it began, so that a region flushed by many peers at once is written about once.
type flusher struct {
	sync func(from, to uint64) error // writes [from, to) to disk

	mu    sync.Mutex
	busy  bool
	queue []*flushing
}

// flushing is one waiting flush.
type flushing struct {
	missing []extent // ranges not yet on disk, in order
	err     error
	done    chan struct{}
}

// extent is the range [from, to).
type extent struct{ from, to uint64 }

// flush writes [from, to) to disk as it is at the time of the call or later.
func (f *flusher) flush(from, to uint64) error {
	if from == to {
		return nil
	}
	w := &flushing{missing: []extent{{from, to}}, done: make(chan struct{})}
	f.mu.Lock()
	f.queue = append(f.queue, w)
	first := !f.busy
	f.busy = true
	f.mu.Unlock()
	if first {
		go f.flushLoop()
	}
	<-w.done
	return w.err
}

// flushLoop writes pieces until no flush is waiting.
func (f *flusher) flushLoop() {
	for {
		f.mu.Lock()
		if len(f.queue) == 0 {
			f.busy = false
			f.mu.Unlock()
			return
		}
		served := slices.Clone(f.queue) // without flushes that come during the msync: it may miss their data
		next := served[0].missing[0]
		next.to = min(next.to, next.from+flushPiece)
		f.mu.Unlock()
		err := f.sync(next.from, next.to)
		f.mu.Lock()
		f.queue = append(f.queue[1:], served[0]) // behind those that came during the msync
		for _, w := range served {
			if w.progress(next, err) {
				f.queue = slices.DeleteFunc(f.queue, func(o *flushing) bool { return o == w })
				close(w.done)
			}
		}
		f.mu.Unlock()
	}
}

// progress records that e was written to the disk, or failed with err. It reports whether w is done.
func (w *flushing) progress(e extent, err error) bool {
	var left []extent
	for _, l := range w.missing {
		if e.to <= l.from || l.to <= e.from {
			left = append(left, l)
			continue
		}
		w.err = err
		if l.from < e.from {
			left = append(left, extent{l.from, e.from})
		}
		if e.to < l.to {
			left = append(left, extent{e.to, l.to})
		}
	}
	w.missing = left
	return w.err != nil || len(left) == 0
}
