package core

import (
	"net/netip"
	"testing"

	"xwarp/engine/verbs"
	"xwarp/mpa/startup"
	"xwarp/tcp/tick"
)

// TestPeerFallbacks: a feature that a peer refused is omitted for fallbackLife, on that port only. The table has at
// most maxFallbacks entries: the oldest are forgotten.
func TestPeerFallbacks(t *testing.T) {
	var v peerFallbacks
	peer := func(n int) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}), 7174)
	}
	asks := func(p netip.AddrPort, now tick.Time) (m verbs.MPAConfig) {
		v.apply(p, &m, now)
		return m
	}
	now := tick.Time(tick.Second)
	v.learn(peer(1), startup.RetryRevision1, now)
	v.learn(peer(1), startup.RetryNoMarkers, now.Add(tick.Minute))
	if m := asks(peer(1), now.Add(tick.Minute)); m != (verbs.MPAConfig{Revision: startup.RevIETF,
		Markers: verbs.MarkersOff}) {
		t.Errorf("%+v, want revision 1 without markers", m)
	}
	for _, p := range []netip.AddrPort{peer(2), netip.AddrPortFrom(peer(1).Addr(), 7175)} {
		if m := asks(p, now); m != (verbs.MPAConfig{}) {
			t.Errorf("%v was never tried, but %+v", p, m)
		}
	}
	if m := asks(peer(1), now.Add(tick.Minute+fallbackLife)); m != (verbs.MPAConfig{}) {
		t.Errorf("after its life: %+v", m)
	}
	now = now.Add(tick.Minute + fallbackLife)
	v.learn(peer(1), startup.RetryNoMarkers, now)
	if m := asks(peer(1), now); m != (verbs.MPAConfig{Markers: verbs.MarkersOff}) {
		t.Errorf("after a new refusal: %+v, want only markers omitted", m)
	}
	for i := range maxFallbacks + 10 {
		v.learn(peer(i), startup.RetryRevision1, now.Add(tick.Duration(i)))
	}
	if len(v.peers) != maxFallbacks {
		t.Errorf("%d entries, want at most %d", len(v.peers), maxFallbacks)
	}
	if asks(peer(0), now).Revision != 0 || asks(peer(maxFallbacks+9), now).Revision == 0 {
		t.Error("not the oldest were forgotten")
	}
	v.learn(peer(0), startup.RetryRevision1, now.Add(2*fallbackLife))
	if len(v.peers) != 1 {
		t.Errorf("%d entries, of which all but one are over", len(v.peers))
	}
}
