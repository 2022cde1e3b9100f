package core

import (
	"net"
	"net/netip"

	"xwarp/tcp"
	"xwarp/tcp/ip"
)

// ToNetip returns a as a netip.Addr, IPv4 addresses in their 4-byte form.
func ToNetip(a ip.Addr) netip.Addr { return netip.AddrFrom16(a).Unmap() }

// FromNetip is the inverse of ToNetip.
func FromNetip(a netip.Addr) ip.Addr { return ip.Addr(a.As16()) }

// TupleAddrs returns the two ends of a connection.
func TupleAddrs(t *tcp.Tuple) (local, remote netip.AddrPort) {
	return netip.AddrPortFrom(ToNetip(t.Local), t.LocalPort), netip.AddrPortFrom(ToNetip(t.Remote),
		t.RemotePort)
}

// AddrPort returns the address of a TCP socket, the zero AddrPort for other sockets.
func AddrPort(a net.Addr) netip.AddrPort {
	if t, ok := a.(*net.TCPAddr); ok {
		p := t.AddrPort()
		return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
	}
	return netip.AddrPort{}
}
