package daemon

import (
	"fmt"
	"log/slog"
	"runtime/debug"

	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/device"
)

// errDefect is what a program gets when its session ended by a defect of the daemon.
var errDefect = control.Errorf(control.CodeInternal,
	"a defect of the daemon, which has the stack in its log, ended this session")

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
		e.d.defect(e.log, doing, v)
	}
}

// defect counts and logs a panic. It is called before the stack of the panic is left.
func (d *Daemon) defect(log *slog.Logger, doing string, v any) {
	d.count.Defects.Add(1)
	log.Error("defect of xwarpd: what was being served ends, the rest goes on", "doing", doing,
		"panic", fmt.Sprint(v),
		"stack", string(debug.Stack()), "next", "report this line")
}

// uses reports whether a session has something of a device.
func (s *session) uses(v *device.Device) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dev == v && len(has[*pd](s))+len(has[*running](s)) > 0
}
