package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"

	"xwarp/engine/daemon/control"
)

// errDefect is what a program hears that a defect of the daemon cost its session.
var errDefect = &control.Error{Code: control.CodeInternal, Text: "a defect of the daemon, which " +
	"has the stack in its log, ended this session"}

// contain is deferred by what serves one program. A panic there is a defect of the daemon, and ends that session only.
func (s *session) contain(doing string) {
	if v := recover(); v != nil {
		s.d.defect(s.log, doing, v)
		s.fail(errDefect)
	}
}

// contain is deferred by what serves one peer of an export, which closes its connection in any case.
func (e *export) contain(doing string) {
	if v := recover(); v != nil {
		e.d.defect(e.d.log.With("export", e.cfg.Name), doing, v)
	}
}

// defect counts and logs a panic. It is called before the stack of the panic is left.
func (d *Daemon) defect(log *slog.Logger, doing string, v any) {
	d.ended.defects.Add(1)
	log.Error("defect of xwarpd: what was being served ends, the rest goes on", "doing", doing,
		"panic", fmt.Sprint(v),
		"stack", string(debug.Stack()), "next", "report this line")
}

// errNoDevice ends a daemon none of whose devices works.
var errNoDevice = errors.New("no device works any more")

// attend waits for the failure of a device. The host gets its interface back, the programs that used it are
// dropped, its exports fail; the other devices go on. When none is left, lost ends the daemon, so that
// systemd starts it again: opening a device takes rights which it gave up when it had opened them all.
func (d *Daemon) attend(ctx context.Context, v *device, lost func(error)) {
	select {
	case <-ctx.Done():
		return
	case <-v.dev.Failed():
	}
	err := fmt.Errorf("device %s: %w", v.name, v.dev.Err())
	d.log.Error("device is lost: its programs and exports end, other devices go on", "device",
		v.name, "error", err, "next", "systemctl restart xwarpd")
	if err := v.dev.Detach(); err != nil {
		d.log.Warn("the interface keeps its program", "device", v.name, "error", err)
	}
	d.inTime(stopWait, "device "+v.name, func() { // before the memory of programs goes
		if err := v.dev.Close(); err != nil {
			d.log.Warn("closing a device that failed", "device", v.name, "error", err)
		}
	})
	for _, s := range d.all() {
		if s.uses(v) {
			s.fail(&control.Error{Code: control.CodeClosed, Text: err.Error()})
		}
	}
	d.mu.Lock()
	exports := append([]*export(nil), d.exports...)
	d.mu.Unlock()
	for _, e := range exports {
		if e.dev == v {
			e.lose(err)
		}
	}
	for _, other := range d.devices {
		if other.dev.Err() == nil {
			return
		}
	}
	lost(fmt.Errorf("%w: %w", errNoDevice, err))
}

func (s *session) uses(v *device) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dev == v
}
