package ipsec

import (
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
	Replayed   uint64 // packets that are replayed, or older than the anti-replay window
	Forged     uint64 // packets with a wrong integrity check value
	Malformed  uint64 // packets with an invalid length, padding or next header
	Expired    uint64 // packets beyond the hard limit of their SA
	Dummy      uint64 // dummy packets (RFC 4303, 2.6)
	Rekeys     uint64 // times that sending moved to another SA
	Requests   uint64 // requests to the IKE daemon for an SA, except those for a successor
}

func (s *Stats) add(h *held) {
	packets, bytes := h.used()
	if h.in == nil {
		s.PacketsOut += packets
		s.BytesOut += bytes
		return
	}
	s.PacketsIn += packets
	s.BytesIn += bytes
	d := &h.in.Drops
	s.Replayed += d.Replayed
	s.Forged += d.Forged
	s.Malformed += d.Short + d.Payload
	s.Expired += d.Expired
	s.Dummy += d.Dummy
}

// Stats returns the counters.
func (m *Manager) Stats() Stats {
	s := m.total
	for _, h := range m.sas {
		s.add(h)
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

// EachSA calls f for each SA in use, of which in or out counts the traffic; the other one is nil. sending says that new
// packets use it.
func (m *Manager) EachSA(f func(sa *xfrm.SA, in *esp.In, out *esp.Out, sending bool)) {
	for sa, h := range m.sas {
		f(sa, h.in, h.out, h.flow.current == sa)
	}
}
