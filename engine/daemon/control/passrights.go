package control

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// PassRights says whether programs may send descriptors through a socket, or through those that a listener
// will have. Before Linux 6.16 they always may.
func PassRights(s syscall.Conn, may bool) {
	raw, err := s.SyscallConn()
	if err != nil {
		return
	}
	v := 0
	if may {
		v = 1
	}
	raw.Control(func(fd uintptr) {
		unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSRIGHTS, v)
	})
}
