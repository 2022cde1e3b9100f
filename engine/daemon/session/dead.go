package session

import (
	"time"

	"golang.org/x/sys/unix"
)

// afterTheDead waits until programs of the same holder that died before this one came have given everything back, or
// for deadWait: who starts a program anew finds its port and its share free, as with sockets of the kernel.
func (s *Session) afterTheDead() {
	end := time.NewTimer(deadWait)
	defer end.Stop()
	for _, o := range s.d.Sessions() {
		if o == s || o.account != s.account || !o.gone() {
			continue
		}
		select {
		case <-o.released:
		case <-end.C:
			return
		case <-s.ctx.Done():
			return
		}
	}
}

// gone reports whether the program closed its end, which the reader of the session may not have seen yet.
func (s *Session) gone() (gone bool) {
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
