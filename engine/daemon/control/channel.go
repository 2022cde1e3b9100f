package control

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Channel is the daemon's end of a completion channel: a stream socket at whose other end a program waits;
// each byte is a signal. An eventfd would not do: both sides share one open file description, so a program could fill
// it and clear O_NONBLOCK, and the daemon would block. The ends of a socket are two, and MSG_DONTWAIT belongs to the
// call.
type Channel struct {
	mu sync.Mutex
	fd int // -1: closed
}

// NewChannel makes a channel; peer is the program's end, which is the caller's.
func NewChannel() (c *Channel, peer int, err error) {
	fd, peer, err := newStream(1) // the kernel makes it the least there is: some unread signals, not hundreds
	return &Channel{fd: fd}, peer, err
}

// NewStream makes a stream socket whose one end the daemon writes, as f, and whose other end a program reads.
// A pipe would not do: its reader holds a lock that the writer waits for, even with O_NONBLOCK.
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

// newStream makes the two ends. Nothing can be sent to the daemon's end: bytes and descriptors that came there would be
// closed with it.
func newStream(buffer int) (fd, peer int, err error) {
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, -1, fmt.Errorf("socketpair: %w", err)
	}
	err = unix.Shutdown(p[0], unix.SHUT_RD)
	if unix.SetsockoptInt(p[0], unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, buffer) != nil { // wants CAP_NET_ADMIN
		err = errors.Join(err, unix.SetsockoptInt(p[0], unix.SOL_SOCKET, unix.SO_SNDBUF, buffer))
	}
	if err != nil {
		unix.Close(p[0])
		unix.Close(p[1])
		return -1, -1, fmt.Errorf("stream socket: %w", err)
	}
	return p[0], p[1], nil
}

// Ring signals. It never blocks; where signals wait unread already, one more says nothing new.
func (c *Channel) Ring() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fd >= 0 {
		unix.Send(c.fd, []byte{1}, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	}
}

// Close ends the channel; the program reads its end.
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

// OpenChannel takes over a program's end.
func OpenChannel(fd int) (*ChannelReader, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("completion channel: %w", err)
	}
	return &ChannelReader{os.NewFile(uintptr(fd), "completion channel")}, nil
}

// Wait returns after the next signal, or with an error when either side closed.
func (r *ChannelReader) Wait() error {
	var b [64]byte
	_, err := r.f.Read(b[:])
	return err
}

// Close ends Wait.
func (r *ChannelReader) Close() error { return r.f.Close() }

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
