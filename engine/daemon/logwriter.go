package daemon

import (
	"bytes"
	"io"
	"sync"

	"xwarp/engine/wake"
)

// LogWriter writes the log on its own goroutine, because workers log too and must not wait for the reader of the log.
type LogWriter struct {
	to         io.Writer
	ready      wake.Flag     // set when pending has got lines, or closed is set
	done       chan struct{} // closed when writeLoop has ended
	suppressed func(lines int)

	mu      sync.Mutex
	pending []byte // lines for writeLoop
	lost    int    // lines dropped because pending was full
	closed  bool
}

// NewLogWriter returns a writer to w. If the reader of w falls behind by more than maxLogBacklog, the LogWriter drops
// lines and later calls suppressed with their number. suppressed may write to w: it is called between two writes of the
// LogWriter. It should not write to the LogWriter, which might drop that line too.
func NewLogWriter(w io.Writer, suppressed func(lines int)) *LogWriter {
	l := &LogWriter{to: w, suppressed: suppressed, ready: wake.New(),
		done: make(chan struct{})}
	go l.writeLoop()
	return l
}

// Write queues lines, or drops them if more than maxLogBacklog bytes would be queued. It never blocks on the reader of
// the log and never fails.
func (l *LogWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	if len(l.pending)+len(b) > maxLogBacklog {
		l.lost += bytes.Count(b, []byte("\n"))
	} else {
		l.pending = append(l.pending, b...)
	}
	l.mu.Unlock()
	l.ready.Set()
	return len(b), nil
}

func (l *LogWriter) writeLoop() {
	defer close(l.done)
	var batch []byte
	for closed := false; !closed; {
		<-l.ready
		l.mu.Lock()
		batch, l.pending = l.pending, batch[:0]
		lost := l.lost
		l.lost, closed = 0, l.closed
		l.mu.Unlock()
		l.to.Write(batch)
		if lost > 0 {
			l.suppressed(lost)
		}
	}
}

// Close writes the queued lines. Lines that are written afterwards are lost.
func (l *LogWriter) Close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.ready.Set()
	<-l.done
	return nil
}

// Unwrap returns the writer that NewLogWriter got.
func (l *LogWriter) Unwrap() io.Writer { return l.to }
