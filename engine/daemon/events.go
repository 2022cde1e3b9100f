package daemon

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"xwarp/engine/budget"
	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/session"
)

// eventLog is a slog.Handler that records lines of level Info and above as events, even if the level of the log is
// higher. It passes lines on to next.
type eventLog struct {
	next    slog.Handler
	events  *session.Events
	account *budget.Account // of the program; nil: none
	attrs   []slog.Attr
}

// logFor returns a log whose lines are also events for an account.
func (d *Daemon) logFor(a *budget.Account) *slog.Logger {
	h := d.log.Handler().(*eventLog)
	return slog.New(&eventLog{h.next, h.events, a, h.attrs})
}

// Enabled implements slog.Handler. Lines of level Info and above are always enabled, because they become events.
func (h *eventLog) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelInfo || h.next.Enabled(ctx, l)
}

// Handle implements slog.Handler. It records an event for a line of level Info or above, and passes the line to next if
// next takes lines of that level.
func (h *eventLog) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo {
		e := control.EventRecord{Time: r.Time.Round(time.Microsecond), Change: control.ChangeEvent,
			Kind: "daemon", Level: r.Level.String(), Event: r.Message}
		for _, a := range h.attrs {
			setField(&e, a)
		}
		r.Attrs(func(a slog.Attr) bool {
			setField(&e, a)
			return true
		})
		h.events.Record(h.account, e)
	}
	if !h.next.Enabled(ctx, r.Level) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

// setField copies an attribute of a log line to the field of e of that name, or to e.Detail if there is none.
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
	case "uid":
		e.UID = new(uint32(v.Uint64()))
	case "pid":
		e.Pid = int32(v.Int64())
	case "qp":
		h, _ := v.Any().(control.Handle)
		e.QP = h
	case "program":
		e.Program = text
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
	return &eventLog{h.next.WithAttrs(a), h.events, h.account, append(slices.Clone(h.attrs), a...)}
}

// WithGroup implements slog.Handler. Events do not show groups.
func (h *eventLog) WithGroup(name string) slog.Handler {
	return &eventLog{h.next.WithGroup(name), h.events, h.account, h.attrs}
}
