package engine

import (
	"net"
	"net/netip"

	"xwarp/tcp"
	"xwarp/tcp/ip"
)

func toNetip(a ip.Addr) netip.Addr   { return netip.AddrFrom16(a).Unmap() }
func fromNetip(a netip.Addr) ip.Addr { return ip.Addr(a.As16()) }

func tupleAddrs(t *tcp.Tuple) (local, remote netip.AddrPort) {
	return netip.AddrPortFrom(toNetip(t.Local), t.LocalPort), netip.AddrPortFrom(toNetip(t.Remote),
		t.RemotePort)
}

func addrPort(a net.Addr) netip.AddrPort {
	if t, ok := a.(*net.TCPAddr); ok {
		p := t.AddrPort()
		return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
	}
	return netip.AddrPort{}
}
