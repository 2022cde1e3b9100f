package daemon

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// limitWindow and limitLines bound what peers and programs can make the daemon write: lines of one message in a window.
const (
	limitWindow = 10 * time.Second
	limitLines  = 100
)

// LimitLog returns a handler that lets through a bounded number of lines of each message in a window of time,
// and says how many it kept back. Errors are never kept back.
func LimitLog(h slog.Handler) slog.Handler {
	return &limiter{h, &limits{lines: map[string]*limit{}}}
}

type limiter struct {
	slog.Handler
	all *limits
}

type limits struct {
	mu    sync.Mutex
	lines map[string]*limit // by message; messages are constants of the program, so they are few
}

type limit struct {
	since time.Time
	n     int
	held  int
}

// pass reports whether a line may go, and how many before it did not.
func (l *limits) pass(message string, now time.Time) (ok bool, held int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.lines[message]
	if m == nil {
		m = &limit{since: now}
		l.lines[message] = m
	}
	if now.Sub(m.since) >= limitWindow {
		held = m.held
		*m = limit{since: now}
	}
	if m.n == limitLines {
		m.held++
		return false, 0
	}
	m.n++
	return true, held
}

// Handle implements slog.Handler.
func (l *limiter) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError {
		return l.Handler.Handle(ctx, r)
	}
	ok, held := l.all.pass(r.Message, r.Time)
	if !ok {
		return nil
	}
	if held > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("lines_kept_back", held))
	}
	return l.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (l *limiter) WithAttrs(a []slog.Attr) slog.Handler {
	return &limiter{l.Handler.WithAttrs(a), l.all}
}

// WithGroup implements slog.Handler.
func (l *limiter) WithGroup(name string) slog.Handler {
	return &limiter{l.Handler.WithGroup(name), l.all}
}
