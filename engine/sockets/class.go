package sockets

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Mark makes a listener's answers and connections have the TOS byte tos, and the hop limit of the device.
func (k *Driver) Mark(ln net.Listener, tos uint8) {
	if s, ok := ln.(syscall.Conn); ok {
		if raw, err := s.SyscallConn(); err == nil {
			raw.Control(func(fd uintptr) { k.mark(int(fd), tos) })
		}
	}
}

// mark sets the TOS byte of a new socket to tos, and its hop limit to that of the device. Where one of them is zero,
// the kernel's default stays.
func (k *Driver) mark(fd int, tos uint8) {
	if tos != 0 {
		setTOS(fd, tos)
	}
	if n := k.base.Options().HopLimit; n != 0 {
		setOption(fd, unix.IP_TTL, unix.IPV6_UNICAST_HOPS, n)
	}
}

// setTOS sets the TOS byte or traffic class of a socket. The kernel leaves the ECN bits to its TCP.
func setTOS(fd int, tos uint8) { setOption(fd, unix.IP_TOS, unix.IPV6_TCLASS, int(tos)) }

// setOption sets the option of IPv4 or of IPv6 by the family of the socket. Neither fails for a TCP socket and a value
// of 8 bits.
func setOption(fd, v4, v6, value int) {
	if family, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN); err == nil &&
		family == unix.AF_INET6 {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, v6, value)
		return
	}
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, v4, value)
}
