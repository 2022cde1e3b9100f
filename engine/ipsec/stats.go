package ipsec

import (
	"cmp"
	"net/netip"
	"slices"

	"xwarp/engine/esp"
	"xwarp/engine/host/xfrm"
)

// Stats are the counters of a Manager.
type Stats struct {
	PacketsIn  uint64
	BytesIn    uint64 // payload bytes, as in limits of SAs
	PacketsOut uint64
	BytesOut   uint64
	Replayed   uint64 // replayed packets, or left of the anti-replay window
	Forged     uint64 // packets with a wrong integrity check value
	Malformed  uint64 // packets with an invalid length, padding or next header
	Expired    uint64 // packets beyond the hard limit of their SA
	Dummy      uint64 // dummy packets (RFC 4303, 2.6)
	Rekeys     uint64 // times that sending moved to another SA
	Requests   uint64 // requests to the IKE daemon for an SA, except those for a successor
}

func (s *Stats) addIn(in *esp.In) {
	packets, bytes := in.Used()
	s.PacketsIn += packets
	s.BytesIn += bytes
	d := &in.Drops
	s.Replayed += d.Replayed
	s.Forged += d.Forged
	s.Malformed += d.Short + d.Payload
	s.Expired += d.Expired
	s.Dummy += d.Dummy
}

func (s *Stats) addOut(out *esp.Out) {
	packets, bytes := out.Used()
	s.PacketsOut += packets
	s.BytesOut += bytes
}

// Add adds the counters of another Manager.
func (s *Stats) Add(o *Stats) {
	for to, n := range map[*uint64]uint64{&s.PacketsIn: o.PacketsIn, &s.BytesIn: o.BytesIn,
		&s.PacketsOut: o.PacketsOut, &s.BytesOut: o.BytesOut, &s.Replayed: o.Replayed,
		&s.Forged: o.Forged, &s.Malformed: o.Malformed, &s.Expired: o.Expired,
		&s.Dummy: o.Dummy, &s.Rekeys: o.Rekeys, &s.Requests: o.Requests} {
		*to += n
	}
}

// Stats returns the counters.
func (m *Manager) Stats() Stats {
	s := m.total
	for _, in := range m.ins {
		s.addIn(in.esp)
	}
	for _, out := range m.outs {
		s.addOut(out.esp)
	}
	return s
}

// Waiting returns the hosts to which packets wait for an SA.
func (m *Manager) Waiting() (list []netip.Addr) {
	for p, f := range m.flows {
		if f.wantsSA {
			list = append(list, addrOf(p.remote))
		}
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return slices.Compact(list)
}

// Association describes an SA in use.
type Association struct {
	Local, Remote netip.Addr
	SPI           uint32
	Outbound      bool
	Sending       bool // used for new packets
	Mode          esp.Mode
	KeyBits       int
	ESN           bool
	Packets       uint64
	Bytes         uint64
	Replayed      uint64
	Forged        uint64
}

func describe(sa *xfrm.SA) Association {
	return Association{Local: sa.Src, Remote: sa.Dst, SPI: sa.SPI, Mode: sa.Mode, ESN: sa.ESN,
		KeyBits: (len(sa.Keymat) - saltLen) * 8}
}

// saltLen is the length of the salt after the key (RFC 4106, 8.1).
const saltLen = 4

// Associations returns the SAs in use, sorted by peer, direction and SPI.
func (m *Manager) Associations() (list []Association) {
	for sa, in := range m.ins {
		a := describe(sa)
		a.Local, a.Remote = sa.Dst, sa.Src
		a.Packets, a.Bytes = in.esp.Used()
		a.Replayed, a.Forged = in.esp.Drops.Replayed, in.esp.Drops.Forged
		list = append(list, a)
	}
	sending := map[*xfrm.SA]bool{}
	for _, f := range m.flows {
		sending[f.current] = true
	}
	for sa, out := range m.outs {
		a := describe(sa)
		a.Outbound, a.Sending = true, sending[sa]
		a.Packets, a.Bytes = out.esp.Used()
		list = append(list, a)
	}
	slices.SortFunc(list, func(a, b Association) int {
		direction := func(x Association) int {
			if x.Outbound {
				return 1
			}
			return 0
		}
		return cmp.Or(a.Remote.Compare(b.Remote), direction(a)-direction(b),
			cmp.Compare(a.SPI, b.SPI))
	})
	return list
}
