package control

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Channel is the daemon's end of a completion channel: a stream socket on which a program waits. Each byte is a signal.
// An eventfd is not suitable: both sides share one open file description, so a program could fill it and clear
// O_NONBLOCK, and block the daemon. A socket has two ends, and MSG_DONTWAIT applies to the call.
type Channel struct {
	mu sync.Mutex
	fd int // -1 if closed
}

// NewChannel creates a channel. peer is the program's end, which the caller owns.
func NewChannel() (c *Channel, peer int, err error) {
	fd, peer, err := newStream(1) // the kernel raises 1 to its minimum, which holds a few unread signals, not hundreds
	return &Channel{fd: fd}, peer, err
}

// NewStream creates a stream socket. The daemon writes to f, and a program reads from peer. buffer is the size of the
// send buffer in bytes. A pipe is not suitable: while a program reads it, the kernel holds a lock of the pipe, for
// which a writer waits even with O_NONBLOCK.
func NewStream(name string, buffer int) (f *os.File, peer int, err error) {
	fd, peer, err := newStream(buffer)
	if err != nil {
		return nil, -1, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		unix.Close(peer)
		return nil, -1, fmt.Errorf("stream socket: %w", err)
	}
	return os.NewFile(uintptr(fd), name), peer, nil
}

// newStream creates a stream socket: fd is the daemon's end, peer the program's. The program cannot send to fd:
// otherwise closing fd would also close the descriptors that the program sent to it, which can block.
func newStream(buffer int) (fd, peer int, err error) {
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, -1, fmt.Errorf("socketpair: %w", err)
	}
	err = unix.Shutdown(p[0], unix.SHUT_RD)
	if unix.SetsockoptInt(p[0], unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, buffer) != nil { // needs CAP_NET_ADMIN
		err = errors.Join(err, unix.SetsockoptInt(p[0], unix.SOL_SOCKET, unix.SO_SNDBUF, buffer))
	}
	if err != nil {
		unix.Close(p[0])
		unix.Close(p[1])
		return -1, -1, fmt.Errorf("stream socket: %w", err)
	}
	return p[0], p[1], nil
}

// Ring signals. It never blocks; if unread signals are pending, another one is not needed.
func (c *Channel) Ring() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fd >= 0 {
		unix.Send(c.fd, []byte{1}, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	}
}

// Close closes the channel. The program reads end of file.
func (c *Channel) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fd >= 0 {
		unix.Close(c.fd)
		c.fd = -1
	}
}

// ChannelReader is the program's end of a completion channel.
type ChannelReader struct{ f *os.File }

// OpenChannel takes ownership of fd, a program's end of a completion channel. It closes fd if it fails.
func OpenChannel(fd int) (*ChannelReader, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("completion channel: %w", err)
	}
	return &ChannelReader{os.NewFile(uintptr(fd), "completion channel")}, nil
}

// Wait returns after the next signal, or with an error if either side closed the channel.
func (r *ChannelReader) Wait() error {
	var b [64]byte
	_, err := r.f.Read(b[:])
	return err
}

// Close closes the reader's end of the channel. A running Wait returns an error.
func (r *ChannelReader) Close() error { return r.f.Close() }

// PassRights allows or forbids programs to send descriptors through the socket s or, if s is a listener, through the
// sockets that it accepts. It has no effect before Linux 6.16, which introduced SO_PASSRIGHTS: there programs always
// may.
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
