package daemon

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"xwarp/engine"
	"xwarp/engine/daemon/config"
)

func TestPeerLimits(t *testing.T) {
	var p peers
	now := time.Unix(1000, 0)
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	two := &config.Peer{Prefix: netip.MustParsePrefix("192.0.2.0/24"), Connections: 2}
	first, err := p.admit(two, a, now)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.admit(two, a, now); err != nil {
		t.Fatal(err)
	}
	if _, err := p.admit(two, a, now); !errors.Is(err, engine.ErrPeerDenied) {
		t.Errorf("a third of two: %v", err)
	}
	if _, err := p.admit(two, b, now); err != nil {
		t.Errorf("another address: %v", err)
	}
	first()
	if _, err := p.admit(two, a, now); err != nil {
		t.Errorf("in place of one that is gone: %v", err)
	}
	if _, err := p.admit(nil, a, now); err != nil {
		t.Errorf("without limits: %v", err)
	}
}

func TestPeerRate(t *testing.T) {
	var p peers
	now := time.Unix(1000, 0)
	a := netip.MustParseAddr("192.0.2.1")
	c := &config.Peer{Prefix: netip.MustParsePrefix("192.0.2.0/24"), ConnectionRate: 3}
	count := func(at time.Time) (n int) {
		for range 10 {
			if release, err := p.admit(c, a, at); err == nil {
				release()
				n++
			}
		}
		return n
	}
	if n := count(now); n != 3 {
		t.Errorf("%d at once, want 3", n)
	}
	if n := count(now.Add(700 * time.Millisecond)); n != 2 {
		t.Errorf("%d after 0.7 s, want 2", n)
	}
	if n := count(now.Add(10 * time.Second)); n != 3 {
		t.Errorf("%d after a rest, want 3", n)
	}
	c.ConnectionRate = 5             // a reload
	count(now.Add(20 * time.Second)) // what was saved up at the old rate
	if n := count(now.Add(30 * time.Second)); n != 5 {
		t.Errorf("%d with the new rate, want 5", n)
	}
}

// Many addresses fill the table, and leave it.
func TestPeerTable(t *testing.T) {
	var p peers
	now := time.Unix(1000, 0)
	c := &config.Peer{Prefix: netip.MustParsePrefix("2001:db8::/32"), ConnectionRate: 1}
	address := func(i int) netip.Addr {
		return netip.AddrFrom16([16]byte{0x20, 1, 0x0d, 0xb8, 13: byte(i >> 16), 14: byte(i >> 8), 15: byte(i)})
	}
	for i := range maxPeers {
		release, err := p.admit(c, address(i), now)
		if err != nil {
			t.Fatal(err)
		}
		release()
	}
	if _, err := p.admit(c, address(maxPeers), now); !errors.Is(err, engine.ErrPeerDenied) {
		t.Errorf("one more: %v", err)
	}
	if _, err := p.admit(c, address(maxPeers), now.Add(2*time.Second)); err != nil {
		t.Errorf("later: %v", err)
	}
	if len(p.use) != 1 {
		t.Errorf("%d addresses are kept", len(p.use))
	}
}
