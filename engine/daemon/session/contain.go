package session

import (
	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/device"
)

// errDefect is the error of a session that ended because of a bug in the daemon.
var errDefect = control.Errorf(control.CodeInternal,
	"internal error in xwarpd: session closed; its log has the stack")

// onDefect is for guard.Recover in the goroutines of a session. A panic there is a bug in the daemon, and ends that
// session only.
func (s *Session) onDefect(doing string) func(v any) {
	return func(v any) {
		s.d.ReportDefect(s.log, doing, v)
		s.Fail(errDefect)
	}
}

// Uses reports whether the session has protection domains or captures of a device. Listeners and completion queues do
// not count.
func (s *Session) Uses(v *device.Device) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dev == v && len(objectsLocked[*pd](s))+len(objectsLocked[*capture](s)) > 0
}
