package daemon

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"xwarp/engine/daemon/control"
)

// eventsKept is the number of events that a daemon keeps. A quiet host fills it in an evening, and a flood of
// connections cannot make it grow.
const eventsKept = 512

// eventRing holds the latest events.
type eventRing struct {
	mu   sync.Mutex
	last uint64 // number of events so far
	slot [eventsKept]control.EventRecord
}

func (r *eventRing) add(e *control.EventRecord) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	e.Seq = r.last
	r.slot[r.last%eventsKept] = *e
}

// list returns the events, oldest first.
func (r *eventRing) list() []control.EventRecord {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := min(r.last, eventsKept)
	list := make([]control.EventRecord, 0, n)
	for seq := r.last - n + 1; seq <= r.last; seq++ {
		list = append(list, r.slot[seq%eventsKept])
	}
	return list
}

// eventLog is a slog.Handler that keeps lines from level Info on, even those below the level of the log.
type eventLog struct {
	next  slog.Handler
	ring  *eventRing
	attrs []slog.Attr
}

// Enabled implements slog.Handler.
func (h *eventLog) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelInfo || h.next.Enabled(ctx, l)
}

// Handle implements slog.Handler.
func (h *eventLog) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo {
		e := control.EventRecord{Time: r.Time.Round(time.Microsecond), Level: r.Level.String(),
			Event: r.Message}
		for _, a := range h.attrs {
			setField(&e, a)
		}
		r.Attrs(func(a slog.Attr) bool {
			setField(&e, a)
			return true
		})
		h.ring.add(&e)
	}
	if !h.next.Enabled(ctx, r.Level) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

// setField sets the field of an event for an attribute.
func setField(e *control.EventRecord, a slog.Attr) {
	v := a.Value.Resolve()
	text := v.String()
	switch a.Key {
	case "device":
		e.Device = text
	case "session":
		if v.Kind() == slog.KindUint64 {
			e.Session = v.Uint64()
		}
	case "export":
		e.Export = text
	case "local":
		e.Local = text
	case "remote":
		e.Remote = text
	case "error":
		e.Error = text
	default:
		if e.Detail == nil {
			e.Detail = map[string]string{}
		}
		e.Detail[a.Key] = text
	}
}

// WithAttrs implements slog.Handler.
func (h *eventLog) WithAttrs(a []slog.Attr) slog.Handler {
	return &eventLog{h.next.WithAttrs(a), h.ring, append(slices.Clone(h.attrs), a...)}
}

// WithGroup implements slog.Handler. Events do not show groups.
func (h *eventLog) WithGroup(name string) slog.Handler {
	return &eventLog{h.next.WithGroup(name), h.ring, h.attrs}
}
