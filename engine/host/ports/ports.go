// Package ports reserves TCP ports in the kernel for connections that bypass the kernel, so that no socket of the host
// uses them.
package ports

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrInUse is wrapped by an error if a socket of the host, or another engine, has the port.
var ErrInUse error = unix.EADDRINUSE

// Reservation holds a port until it is closed or the process ends.
type Reservation struct {
	fd   int
	lock int // excludes other engines that bind past TIME-WAIT; -1: not needed
	addr netip.AddrPort
}

// Reserve reserves the port of at, or any free port if it is 0, in the network namespace of the calling thread. The
// unspecified address reserves the port on every address of its family. The socket is bound and never listens: it
// receives nothing and makes other binds fail.
func Reserve(at netip.AddrPort) (*Reservation, error) {
	family, sa := Sockaddr(at)
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
		unix.IPPROTO_TCP)
	if err != nil {
		return nil, fmt.Errorf("reserve port %d: socket: %w", at.Port(), err)
	}
	if family == unix.AF_INET6 {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1); err != nil {
			unix.Close(fd)
			return nil, fmt.Errorf("reserve port %d: IPV6_V6ONLY: %w", at.Port(), err)
		}
	}
	lock := -1
	err = unix.Bind(fd, sa)
	if errors.Is(err, unix.EADDRINUSE) {
		lock, err = bindPastTimeWait(fd, family, sa, at.Port())
	}
	if err != nil {
		unix.Close(fd)
		return nil, bindError(at, err)
	}
	got, err := unix.Getsockname(fd)
	if err != nil {
		unix.Close(fd)
		closeLock(lock)
		return nil, fmt.Errorf("reserve port %d: %w", at.Port(), err)
	}
	return &Reservation{fd: fd, lock: lock, addr: netip.AddrPortFrom(at.Addr(), Of(got))}, nil
}

// bindPastTimeWait binds a port on which kernel connections of an earlier listener are in TIME-WAIT, as that listener
// itself could. It needs SO_REUSEADDR, but sockets with that option may share a port while none listens. So only the
// holder of the lock binds this way, and it clears the option right after: another engine's bind and any listen then
// fail.
func bindPastTimeWait(fd, family int, sa unix.Sockaddr, port uint16) (lock int, err error) {
	if !onlyTimeWait(port) {
		return -1, unix.EADDRINUSE
	}
	if lock, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return -1, err
	}
	// The scope of this name is the network namespace.
	err = unix.Bind(lock, &unix.SockaddrUnix{Name: fmt.Sprintf("@xwarp/port/%d/%d", family, port)})
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}
	if err == nil {
		err = unix.Bind(fd, sa)
	}
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 0)
	}
	if err != nil {
		closeLock(lock)
		return -1, err
	}
	return lock, nil
}

// onlyTimeWait reports whether the kernel has no listener at a port, and only connections in TIME-WAIT or none, in the
// network namespace of the calling thread.
func onlyTimeWait(port uint16) bool {
	const timeWait = "06"
	local := fmt.Sprintf(":%04X", port)
	for _, table := range []string{"/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"} {
		b, err := os.ReadFile(table)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // the kernel may have no IPv6
			return false
		}
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) > 3 && strings.HasSuffix(f[1], local) &&
				f[3] != timeWait {
				return false
			}
		}
	}
	return true
}

func closeLock(lock int) {
	if lock >= 0 {
		unix.Close(lock)
	}
}

// Addr returns the reserved address and port.
func (r *Reservation) Addr() netip.AddrPort { return r.addr }

// Close releases the port. It may be called more than once.
func (r *Reservation) Close() error {
	if r == nil || r.fd < 0 {
		return nil
	}
	fd := r.fd
	r.fd = -1
	closeLock(r.lock)
	return unix.Close(fd)
}

func bindError(at netip.AddrPort, err error) error {
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return fmt.Errorf("port %d on %v: %w (see: ss -tanp 'sport = :%d')", at.Port(), at.Addr(),
			ErrInUse, at.Port())
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return fmt.Errorf("%v is not an address of this host (see: ip addr): %w", at.Addr(), err)
	case errors.Is(err, unix.EACCES):
		return fmt.Errorf("port %d needs CAP_NET_BIND_SERVICE: %w", at.Port(), err)
	}
	return fmt.Errorf("reserve %v: %w", at, err)
}

// Sockaddr returns the family of an address, and the address in the form of system calls.
func Sockaddr(at netip.AddrPort) (int, unix.Sockaddr) {
	if a := at.Addr().Unmap(); a.Is4() {
		return unix.AF_INET, &unix.SockaddrInet4{Port: int(at.Port()), Addr: a.As4()}
	}
	sa := &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
	if z := at.Addr().Zone(); z != "" {
		sa.ZoneId = zoneIndex(z)
	}
	return unix.AF_INET6, sa
}

// Of returns the port of an address from the kernel; 0 if it has none.
func Of(sa unix.Sockaddr) uint16 {
	switch s := sa.(type) {
	case *unix.SockaddrInet4:
		return uint16(s.Port)
	case *unix.SockaddrInet6:
		return uint16(s.Port)
	}
	return 0
}

// zoneIndex returns the interface index of an IPv6 zone, which is a name or a number (RFC 4007, 11.2); 0 if there is
// none. Like package net it does not know alternative names; package localaddr does.
func zoneIndex(zone string) uint32 {
	if l, err := net.InterfaceByName(zone); err == nil {
		return uint32(l.Index)
	}
	n, _ := strconv.ParseUint(zone, 10, 31)
	return uint32(n)
}
