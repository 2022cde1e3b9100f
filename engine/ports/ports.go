// Package ports reserves TCP ports in the kernel for connections that the kernel never sees, so that no
// socket of the host takes them.
package ports

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// ErrInUse is wrapped when a socket of the host, or another engine, has the port.
var ErrInUse = errors.New("address already in use")

// Reservation holds a port until it is closed or the process ends.
type Reservation struct {
	fd   int
	addr netip.AddrPort
}

// Reserve takes the port of at, or any free one when that is 0, in the network namespace of the calling thread.
// The unspecified address reserves the port on every address of its family. The socket is bound and never
// listens: it receives nothing, and it makes other binds fail.
func Reserve(at netip.AddrPort) (*Reservation, error) {
	family, sa := sockaddr(at)
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_TCP)
	if err != nil {
		return nil, fmt.Errorf("reserve port %d: socket: %w", at.Port(), err)
	}
	if family == unix.AF_INET6 {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1); err != nil {
			unix.Close(fd)
			return nil, fmt.Errorf("reserve port %d: IPV6_V6ONLY: %w", at.Port(), err)
		}
	}
	if err := unix.Bind(fd, sa); err != nil {
		unix.Close(fd)
		return nil, bindError(at, err)
	}
	got, err := unix.Getsockname(fd)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("reserve port %d: %w", at.Port(), err)
	}
	return &Reservation{fd: fd, addr: netip.AddrPortFrom(at.Addr(), portOf(got))}, nil
}

// Addr returns the reserved address with the port that was taken.
func (r *Reservation) Addr() netip.AddrPort { return r.addr }

// Close gives the port back. It may be called more than once.
func (r *Reservation) Close() error {
	if r == nil || r.fd < 0 {
		return nil
	}
	fd := r.fd
	r.fd = -1
	return unix.Close(fd)
}

func bindError(at netip.AddrPort, err error) error {
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return fmt.Errorf("port %d on %v: %w (see: ss -tanp 'sport = :%d')", at.Port(), at.Addr(), ErrInUse, at.Port())
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return fmt.Errorf("%v is not an address of this host (see: ip addr): %w", at.Addr(), err)
	case errors.Is(err, unix.EACCES):
		return fmt.Errorf("port %d needs CAP_NET_BIND_SERVICE: %w", at.Port(), err)
	}
	return fmt.Errorf("reserve %v: %w", at, err)
}

func sockaddr(at netip.AddrPort) (int, unix.Sockaddr) {
	if a := at.Addr().Unmap(); a.Is4() {
		return unix.AF_INET, &unix.SockaddrInet4{Port: int(at.Port()), Addr: a.As4()}
	}
	sa := &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
	if z := at.Addr().Zone(); z != "" {
		sa.ZoneId = zoneIndex(z)
	}
	return unix.AF_INET6, sa
}

func portOf(sa unix.Sockaddr) uint16 {
	switch s := sa.(type) {
	case *unix.SockaddrInet4:
		return uint16(s.Port)
	case *unix.SockaddrInet6:
		return uint16(s.Port)
	}
	return 0
}
