package xdp

import (
	"context"
	"net"
	"net/netip"
	"slices"

	"xwarp/engine/budget"
	"xwarp/engine/host/localaddr"
	"xwarp/engine/host/ports"
	"xwarp/engine/internal/core"
	"xwarp/engine/sockets"
)

// A device on AF_XDP uses kernel sockets over lo for connections to addresses of this host, because their frames do not
// reach its interface. The route tells whether an address is one of this host. Each listener, except those of byte
// streams, has a kernel socket for local connections, which also reserves its port.

// openLoopback starts the driver of local connections, with as many workers as the device has, but at most the maximum
// of package sockets.
func (x *driver) openLoopback() (err error) {
	x.loopback, err = sockets.NewDriver(x.base, sockets.Config{}, len(x.workers))
	if err == nil {
		x.loopback.Allows, x.loopback.Dial = x.allows, x.dialLocal
	}
	return err
}

// IsLocal reports whether connections to an address stay within this host. Without a route to it they do not.
func (d *Device) IsLocal(remote netip.Addr) bool { return d.x.isLocal(remote.Unmap()) }

func (x *driver) isLocal(remote netip.Addr) bool {
	r, err := x.neigh.Route(budget.Bare(remote))
	return err == nil && r.Local
}

// dialLocal implements sockets.Driver.Dial: it connects a kernel socket in the device's network namespace.
func (x *driver) dialLocal(ctx context.Context, local, remote netip.AddrPort,
	prepare func(fd int)) (net.Conn, error) {
	var d *ports.Dialing
	err := x.ns.Do(func() (err error) {
		d, err = ports.Begin(x.inZone(local), x.inZone(remote), prepare)
		return err
	})
	if err != nil {
		return nil, err
	}
	return d.Wait(ctx)
}

func (x *driver) inZone(a netip.AddrPort) netip.AddrPort {
	return localaddr.InZone(a, x.ifname())
}

// listenedPort is the heldPort of a listener for local connections.
type listenedPort struct {
	ln net.Listener
	at netip.AddrPort
}

// Addr implements heldPort.
func (p *listenedPort) Addr() netip.AddrPort { return p.at }

// Close implements heldPort.
func (p *listenedPort) Close() error { return p.ln.Close() }

func (x *driver) listenLocal(want netip.AddrPort) (*listenedPort, error) {
	p := &listenedPort{at: x.inZone(want)}
	err := x.ns.Do(func() (err error) {
		p.ln, err = ports.ListenLocal(p.at)
		return err
	})
	if err == nil {
		p.at = netip.AddrPortFrom(p.at.Addr(), core.AddrPort(p.ln.Addr()).Port())
	}
	return p, err
}

// setAllow replaces the prefixes of peers that listeners serve, on the wire and on lo.
func (x *driver) setAllow(from []netip.Prefix) error {
	x.allow.Store(&from)
	return x.claims.SetPeers(from)
}

// allows reports whether listeners serve a peer with this address.
func (x *driver) allows(a netip.Addr) bool {
	from := *x.allow.Load()
	a = budget.Bare(a)
	return len(from) == 0 ||
		slices.ContainsFunc(from, func(p netip.Prefix) bool { return p.Contains(a) })
}
