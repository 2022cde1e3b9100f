package transfer

import (
	"net/netip"
	"slices"
	"testing"
)

func TestRoom(t *testing.T) {
	a, b, c := owner(netip.MustParseAddr("192.0.2.1")), owner(netip.MustParseAddr("192.0.2.2")),
		owner(netip.MustParseAddr("192.0.2.3"))
	r := room{all: 200, share: 100, owned: map[netip.Prefix]int64{}}
	var claims []*claim
	ask := func(who netip.Prefix, n int64) {
		x := &claim{who, n, make(chan struct{})}
		claims = append(claims, x)
		r.queue = append(r.queue, x)
	}
	granted := func() (list []int) {
		for i, x := range claims {
			select {
			case <-x.granted:
				list = append(list, i)
			default:
			}
		}
		return list
	}
	ask(a, 60)
	ask(a, 60) // above a's share: waits, without blocking others
	ask(b, 100)
	ask(c, 50) // too little is left: later ones wait too
	ask(c, 10)
	if short := r.grant(); !short || !slices.Equal(granted(), []int{0, 2}) {
		t.Errorf("granted %v, short %v", granted(), short)
	}
	r.refund(a, 60)
	if short := r.grant(); !short || !slices.Equal(granted(), []int{0, 1, 2}) {
		t.Errorf("granted %v, short %v", granted(), short)
	}
	r.refund(b, 100)
	if short := r.grant(); short || len(granted()) != 5 || r.used != 120 {
		t.Errorf("granted %v, short %v, %d used", granted(), short, r.used)
	}
	r.refund(a, 60)
	r.refund(c, 60)
	if r.used != 0 || len(r.owned) != 0 {
		t.Errorf("%d used, owners %v", r.used, r.owned)
	}
}

func TestOwner(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.7": "192.0.2.7/32", "::ffff:192.0.2.7": "192.0.2.7/32",
		"2001:db8::1:2:3:4": "2001:db8::/64", "fe80::1%eth0": "fe80::/64",
	} {
		if got := owner(netip.MustParseAddr(text)).String(); got != want {
			t.Errorf("%s belongs to %s, want %s", text, got, want)
		}
	}
}
