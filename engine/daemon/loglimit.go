package daemon

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// limitWindow and limitLines limit log lines that peers and programs can cause: at most limitLines lines with the same
// message in each limitWindow.
const (
	limitWindow = 10 * time.Second
	limitLines  = 100
)

// LimitLog returns a handler that limits the lines of each message per window, and logs at the end of the window how
// many it dropped. Errors are never dropped.
func LimitLog(h slog.Handler) slog.Handler {
	return &limiter{h, &limits{out: h, lines: map[string]*limit{}}}
}

type limiter struct {
	slog.Handler
	all *limits
}

type limits struct {
	out   slog.Handler // without attributes
	mu    sync.Mutex
	lines map[string]*limit // by message; messages are constants, so there are few
}

type limit struct {
	since   time.Time
	n       int
	dropped int // lines dropped since the last report
}

// pass reports whether to write a line with a message. After the first dropped line of a window it schedules report for
// the end of the window.
func (l *limits) pass(message string, now time.Time, report func(dropped int)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.lines[message]
	if m == nil {
		m = &limit{since: now}
		l.lines[message] = m
	}
	if now.Sub(m.since) >= limitWindow {
		m.since, m.n = now, 0
	}
	if m.n < limitLines {
		m.n++
		return true
	}
	if m.dropped++; m.dropped == 1 {
		time.AfterFunc(limitWindow-now.Sub(m.since), func() {
			l.mu.Lock()
			n := m.dropped
			m.dropped = 0
			l.mu.Unlock()
			report(n)
		})
	}
	return false
}

// Handle implements slog.Handler. It drops a line beyond the limit of its message, except an error.
func (l *limiter) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError {
		return l.Handler.Handle(ctx, r)
	}
	if l.all.pass(r.Message, r.Time, func(dropped int) {
		log := slog.New(l.all.out)
		log.Warn("log lines suppressed", "message", r.Message, "lines", dropped)
	}) {
		return l.Handler.Handle(ctx, r)
	}
	return nil
}

// WithAttrs implements slog.Handler.
func (l *limiter) WithAttrs(a []slog.Attr) slog.Handler {
	return &limiter{l.Handler.WithAttrs(a), l.all}
}

// WithGroup implements slog.Handler.
func (l *limiter) WithGroup(name string) slog.Handler {
	return &limiter{l.Handler.WithGroup(name), l.all}
}
