package daemon

import (
	"net"
	"sync"

	"golang.org/x/sys/unix"

	"xwarp/engine/daemon/control"
)

// refuser closes the connections of programs that are not admitted. The close of a socket closes descriptors
// that were sent and not received, which takes as long as their sender likes.
type refuser struct {
	once      sync.Once
	withFiles chan *net.UnixConn // with descriptors in them
}

// refuse answers with e and closes c.
func (r *refuser) refuse(c *net.UnixConn, e *control.Error) {
	// the first bytes of a socket always have room
	control.NewConn(c, control.MaxRequest).Send(control.KindReply,
		control.Marshal(control.Reply{Error: e}))
	if !carriesFiles(c) {
		c.Close()
		return
	}
	r.once.Do(func() {
		r.withFiles = make(chan *net.UnixConn, refusals)
		go func() {
			for c := range r.withFiles {
				c.Close()
			}
		}()
	})
	r.withFiles <- c
}

// carriesFiles reports whether descriptors wait in c, and has nobody send more.
func carriesFiles(c *net.UnixConn) (found bool) {
	c.CloseRead()
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	raw.Control(func(fd uintptr) {
		unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PEEK_OFF, 0)
		b := make([]byte, control.MaxRequest)
		for {
			n, _, flags, _, err := unix.Recvmsg(int(fd), b, nil, unix.MSG_PEEK|unix.MSG_DONTWAIT)
			if found = flags&unix.MSG_CTRUNC != 0; found || n <= 0 || err != nil {
				return
			}
		}
	})
	return found
}
