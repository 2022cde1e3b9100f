package core

import (
	"net"
	"net/netip"

	"xwarp/tcp"
	"xwarp/tcp/ip"
)

func ToNetip(a ip.Addr) netip.Addr   { return netip.AddrFrom16(a).Unmap() }
func FromNetip(a netip.Addr) ip.Addr { return ip.Addr(a.As16()) }

func TupleAddrs(t *tcp.Tuple) (local, remote netip.AddrPort) {
	return netip.AddrPortFrom(ToNetip(t.Local), t.LocalPort), netip.AddrPortFrom(ToNetip(t.Remote),
		t.RemotePort)
}

func AddrPort(a net.Addr) netip.AddrPort {
	if t, ok := a.(*net.TCPAddr); ok {
		p := t.AddrPort()
		return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
	}
	return netip.AddrPort{}
}
