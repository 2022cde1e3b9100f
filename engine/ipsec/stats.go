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

// Association is an SA in use. Packets and bytes are those that its device has carried.
type Association struct {
	*xfrm.SA
	Outbound bool
	Sending  bool // used for new packets
	Packets  uint64
	Bytes    uint64
	Drops    esp.Drops // of an inbound SA
}

// Ends returns the local address and that of the peer.
func (a *Association) Ends() (local, remote netip.Addr) {
	if a.Outbound {
		return a.Src, a.Dst
	}
	return a.Dst, a.Src
}

// Associations returns the SAs in use, sorted by peer, direction and SPI.
func (m *Manager) Associations() (list []Association) {
	for sa, in := range m.ins {
		packets, bytes := in.esp.Used()
		list = append(list, Association{SA: sa, Packets: packets, Bytes: bytes,
			Drops: in.esp.Drops})
	}
	for sa, out := range m.outs {
		packets, bytes := out.esp.Used()
		list = append(list, Association{SA: sa, Packets: packets, Bytes: bytes, Outbound: true,
			Sending: out.flow.current == sa})
	}
	direction := map[bool]int{true: 1}
	slices.SortFunc(list, func(a, b Association) int {
		_, p := a.Ends()
		_, q := b.Ends()
		return cmp.Or(p.Compare(q), direction[a.Outbound]-direction[b.Outbound],
			cmp.Compare(a.SPI, b.SPI))
	})
	return list
}
