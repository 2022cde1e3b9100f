package daemon

import (
	"net"
	"sync"

	"golang.org/x/sys/unix"

	"xwarp/engine/daemon/control"
)

// refuser closes the connections of refused programs. Closing a socket closes descriptors that were sent but not
// received, and can block as long as their sender likes.
type refuser struct {
	once      sync.Once
	withFiles chan *net.UnixConn // connections with pending descriptors, which a goroutine closes
}

// refuse sends e and closes c. A connection with pending descriptors is closed by a goroutine, because that may block.
// While maxPendingRefusals of them wait for the goroutine, refuse blocks.
func (r *refuser) refuse(c *net.UnixConn, e *control.Error) {
	// does not block: the buffer of a new socket has room
	control.NewSocket(c, control.MaxRequest).Send(control.KindReply,
		control.Marshal(control.Reply{Error: e}))
	if !carriesFiles(c) {
		c.Close()
		return
	}
	r.once.Do(func() {
		r.withFiles = make(chan *net.UnixConn, maxPendingRefusals)
		go func() {
			for c := range r.withFiles {
				c.Close()
			}
		}()
	})
	r.withFiles <- c
}

// carriesFiles reports whether descriptors are pending in c. It shuts c down so that no more can be sent.
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
