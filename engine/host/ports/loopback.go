package ports

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// loopback is the interface index of lo in each network namespace.
const loopback = 1

// ListenLocal listens on an address, or on all addresses of its family, for connections within the host. A SYN from an
// interface other than lo is dropped. A segment without a connection that is not a SYN gets a reset, as at a closed
// port. Like a Reservation, the listener keeps other sockets off the port. It belongs to the network namespace of the
// calling thread. It fails as Reserve does.
func ListenLocal(at netip.AddrPort) (net.Listener, error) {
	var c net.ListenConfig
	c.SetMultipathTCP(false)
	c.Control = func(_, _ string, raw syscall.RawConn) (err error) {
		e := raw.Control(func(fd uintptr) {
			err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
				&unix.SockFprog{Len: uint16(len(localSYNs)), Filter: &localSYNs[0]})
		})
		return errors.Join(e, err)
	}
	network := "tcp6" // [::] is all of IPv6 only
	if at.Addr().Unmap().Is4() {
		network = "tcp4"
	}
	ln, err := c.Listen(context.Background(), network, at.String())
	if err != nil {
		return nil, bindError(at, err)
	}
	return ln, nil
}

// localSYNs is a socket filter that drops every SYN that did not arrive on lo. A filter on a TCP socket starts at the
// TCP header.
var localSYNs = []unix.SockFilter{
	{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: flagsOffset},
	{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: flagSYN | flagACK},
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: flagSYN, Jf: 2},
	{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: skbIfindex},
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: loopback, Jf: 1},
	{Code: unix.BPF_RET | unix.BPF_K, K: 1<<32 - 1}, // accept the whole packet
	{Code: unix.BPF_RET | unix.BPF_K, K: 0},
}

// The flags of the TCP header, and the offset of the interface index in a socket filter: SKF_AD_OFF + SKF_AD_IFINDEX.
const (
	flagsOffset = 13
	flagSYN     = 0x02
	flagACK     = 0x10
	skbIfindex  = 1<<32 - 0x1000 + 8
)

// Dialing is a TCP connection that a kernel socket is opening.
type Dialing struct{ file *os.File }

// Begin opens a connection from local, whose address and port may be zero, in the network namespace of the calling
// thread. prepare gets the new socket. Begin does not wait for the peer. It fails as bind and connect do.
func Begin(local, remote netip.AddrPort, prepare func(fd int)) (*Dialing, error) {
	family, to := Sockaddr(remote)
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
		unix.IPPROTO_TCP)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	prepare(fd)
	if local.IsValid() {
		if local.Port() == 0 { // connect chooses a port that is free for this remote
			_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
		}
		_, from := Sockaddr(local)
		if err = unix.Bind(fd, from); err != nil {
			unix.Close(fd)
			return nil, bindError(local, err)
		}
	}
	if err = unix.Connect(fd, to); err != nil && err != unix.EINPROGRESS {
		unix.Close(fd)
		return nil, os.NewSyscallError("connect", err)
	}
	return &Dialing{os.NewFile(uintptr(fd), "tcp")}, nil
}

// Wait returns the connection once it is established. It fails with the peer's or kernel's error, or the context's
// error. d must not be used again.
func (d *Dialing) Wait(ctx context.Context) (net.Conn, error) {
	defer d.file.Close()
	defer context.AfterFunc(ctx, func() { d.file.SetWriteDeadline(time.Unix(1, 0)) })()
	raw, err := d.file.SyscallConn()
	if err != nil {
		return nil, err
	}
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		n, e := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		if failed = e; n != 0 {
			failed = os.NewSyscallError("connect", syscall.Errno(n))
		}
		if failed != nil {
			return true
		}
		_, e = unix.Getpeername(int(fd))
		return e == nil
	})
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case failed != nil:
		return nil, failed
	case err != nil:
		return nil, err
	}
	return net.FileConn(d.file)
}
