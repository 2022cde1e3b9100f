package session

import (
	"time"

	"golang.org/x/sys/unix"
)

// waitForDeadSessions waits until programs of the same holder that died before this one came have given everything back, or
// for deadWait: who starts a program anew finds its port and its share free, as with sockets of the kernel.
func (s *Session) waitForDeadSessions() {
	end := time.NewTimer(deadSessionWait)
	defer end.Stop()
	for _, o := range s.d.Sessions() {
		if o == s || o.account != s.account || !o.hasHungUp() {
			continue
		}
		select {
		case <-o.resourcesReleased:
		case <-end.C:
			return
		case <-s.ctx.Done():
			return
		}
	}
}

// hasHungUp reports whether the program closed its end, which the reader of the session may not have seen yet.
func (s *Session) hasHungUp() (gone bool) {
	raw, err := s.sock.SyscallConn()
	if err != nil {
		return true
	}
	err = raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(p, 0)
		gone = err == nil && n > 0
	})
	return gone || err != nil // closed by the reader
}
