package session

import (
	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/device"
)

// errDefect is the error of a session that ended because of a defect of the daemon.
var errDefect = control.Errorf(control.CodeInternal,
	"a defect of the daemon, which has the stack in its log, ended this session")

// recoverDefect is deferred by the goroutines of a session. A panic there is a defect of the daemon, and ends that
// session only.
func (s *Session) recoverDefect(doing string) {
	if v := recover(); v != nil {
		s.d.ReportDefect(s.log, doing, v)
		s.Fail(errDefect)
	}
}

// Uses reports whether the session has objects of a device.
func (s *Session) Uses(v *device.Device) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dev == v && len(objectsLocked[*pd](s))+len(objectsLocked[*capture](s)) > 0
}
