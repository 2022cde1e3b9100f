package stack

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"xwarp/tcp"
	"xwarp/tcp/ip"
)

// Prefix is an address of this host with the prefix length of its network: 24 for 192.0.2.1/24.
type Prefix struct {
	Addr ip.Addr
	Bits int
	// All means that the whole prefix belongs to this host, as with a local route.
	All bool
}

// local has this host's addresses.
type local struct {
	known      bool // SetLocal was called
	addrs      map[ip.Addr]bool
	broadcasts map[ip.Addr]bool // directed broadcast addresses of the networks of addrs
	whole      []netip.Prefix
}

// SetLocal sets all addresses of this host. From then on the stack refuses connections to other addresses, and from
// these addresses and the broadcast addresses of their networks. Before the first call it accepts any destination that
// can be on a wire. Existing connections stay.
func (s *Stack) SetLocal(list []Prefix) {
	l := local{known: true, addrs: make(map[ip.Addr]bool, len(list)),
		broadcasts: map[ip.Addr]bool{}}
	for _, p := range list {
		if p.All {
			l.whole = append(l.whole, p.netip())
			continue
		}
		l.addrs[p.Addr] = true
		if b, ok := p.broadcast(); ok {
			l.broadcasts[b] = true
		}
	}
	s.local = l
}

// has reports whether a is an address of this host.
func (l *local) has(a *ip.Addr) bool {
	return l.addrs[*a] || slices.ContainsFunc(l.whole, func(p netip.Prefix) bool {
		return p.Contains(netip.AddrFrom16(*a).Unmap())
	})
}

func (p *Prefix) netip() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom16(p.Addr).Unmap(), p.Bits)
}

// broadcast returns the directed broadcast address of p's network (RFC 1122, 3.2.1.3). Networks of one or two addresses
// (RFC 3021) and IPv6 have none.
func (p *Prefix) broadcast() (b ip.Addr, ok bool) {
	if !p.Addr.Is4() || p.Bits < 0 || p.Bits > 30 {
		return b, false
	}
	b = p.Addr
	binary.BigEndian.PutUint32(b[12:], binary.BigEndian.Uint32(b[12:])|^uint32(0)>>p.Bits)
	return b, true
}

// admits reports whether to process a segment between t's addresses that has no connection: its destination must be an
// address of this host, and its source a possible address of another host (RFC 1122, 3.2.1.3; RFC 9293, MUST-57 and
// MUST-63). If not, it counts the drop.
func (s *Stack) admits(t *tcp.Tuple) bool {
	l := &s.local
	switch {
	case l.known && !l.has(&t.Local):
		s.stats.DropNotLocal++
		return false
	case t.Remote == t.Local, neverOnWire(&t.Remote), neverOnWire(&t.Local), l.has(&t.Remote),
		l.broadcasts[t.Remote], l.broadcasts[t.Local]:
		s.stats.DropSource++
		return false
	}
	return true
}

// neverOnWire reports whether a is never the address of a host on a wire: this network, loopback, multicast, reserved,
// or limited broadcast.
func neverOnWire(a *ip.Addr) bool {
	if a.Is4() {
		return a[12] == 0 || a[12] == 127 || a[12] >= 224
	}
	return a[0] == 0xff || slices.Max(a[:15]) == 0 && a[15] <= 1 // ::, ::1
}
