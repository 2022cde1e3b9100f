package session

import (
	"time"

	"golang.org/x/sys/unix"
)

// waitForDeadSessions waits, at most deadSessionWait, for the release of those sessions of the same holder whose
// program has ended. Then a restarted program can use its port and its user's limits again, as with kernel sockets.
func (s *Session) waitForDeadSessions() {
	end := time.After(deadSessionWait)
	for _, o := range s.d.Sessions() {
		if o == s || o.account != s.account || !o.hasHungUp() {
			continue
		}
		select {
		case <-o.resourcesReleased:
		case <-end:
			return
		case <-s.ctx.Done():
			return
		}
	}
}

// hasHungUp reports whether the program has closed its end, which receiveLoop may not have noticed yet.
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
	return gone || err != nil // receiveLoop has closed the socket
}
