package budget

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"xwarp/tcp/tick"
)

const start = tick.Time(tick.Minute)

// one returns Peers with one rule for all addresses.
func one(peer, network PeerLimits) *Peers {
	return NewPeers(func(netip.Addr) PeerRule { return PeerRule{peer, network} })
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func TestConnections(t *testing.T) {
	p := one(PeerLimits{Connections: 2}, PeerLimits{Connections: 3})
	begin := func(a string) *Charge {
		t.Helper()
		h, err := p.Begin(addr(a), start)
		if err != nil {
			t.Fatalf("%s: %v", a, err)
		}
		return h
	}
	refused := func(a string) {
		t.Helper()
		if _, err := p.Begin(addr(a), start); !errors.Is(err, ErrPeer) {
			t.Errorf("%s: %v", a, err)
		}
	}
	first, second := begin("2001:db8::1"), begin("2001:db8::2") // the same /64
	first.Established()
	refused("2001:db8::3")
	third := begin("2001:db8:0:1::1") // the same /48
	refused("2001:db8:0:2::1")
	begin("2001:db8:1::1")
	first.End(start)
	first.End(start)
	begin("2001:db8::3")
	second.End(start)
	third.End(start)
	begin("2001:db8:0:2::1")
	begin("::ffff:192.0.2.1")
	begin("192.0.2.1")
	refused("192.0.2.1")
	begin("192.0.2.2")
	refused("192.0.2.3")
	if _, n := p.State(); n != 4 {
		t.Errorf("%d were refused, want 4", n)
	}
}

// TestLoopbackIsOnePeer: all addresses of 127.0.0.0/8 count as one peer, so a local user gains nothing by using many.
func TestLoopbackIsOnePeer(t *testing.T) {
	p := one(PeerLimits{Connections: 2}, PeerLimits{})
	for _, a := range []string{"127.0.0.1", "127.9.8.7"} {
		if _, err := p.Begin(addr(a), start); err != nil {
			t.Fatalf("%s: %v", a, err)
		}
	}
	if _, err := p.Begin(addr("127.255.0.1"), start); !errors.Is(err, ErrPeer) {
		t.Errorf("a third connection of this host: %v", err)
	}
}

func TestStages(t *testing.T) {
	p := one(PeerLimits{HalfOpen: 2, Startup: 1, Connections: 3}, PeerLimits{})
	a := addr("192.0.2.1")
	for i, want := range []bool{true, true, false} {
		if got := p.BeginHalfOpen(a, start); got != want {
			t.Errorf("half-open connection %d: %v", i+1, got)
		}
	}
	h, err := p.Begin(a, start)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Begin(a, start); err == nil {
		t.Error("a second start-up of one")
	}
	h.Established()
	h.Established()
	if _, err := p.Begin(a, start); err != nil {
		t.Error(err)
	}
	list, _ := p.State()
	if got := fmt.Sprint(list); got != "[{192.0.2.0/24 2 1 1 1} {192.0.2.1/32 2 1 1 1}]" {
		t.Error(got)
	}
	p.EndHalfOpen(a, start)
	if !p.BeginHalfOpen(a, start) {
		t.Error("no room in place of one that is done")
	}
	for range 5 { // more than exist
		p.EndHalfOpen(a, start)
	}
	if list, _ := p.State(); list[0].HalfOpen != 0 || list[1].HalfOpen != 0 {
		t.Errorf("%v", list)
	}
}

func TestRate(t *testing.T) {
	limits := PeerLimits{Rate: 3}
	p := NewPeers(func(netip.Addr) PeerRule { return PeerRule{Peer: limits} })
	a := addr("192.0.2.1")
	count := func(at tick.Time) (n int) {
		for range 10 {
			if h, err := p.Begin(a, at); err == nil {
				h.End(at)
				n++
			}
		}
		return n
	}
	for _, c := range []struct {
		after tick.Duration
		want  int
	}{{0, 3}, {700 * tick.Millisecond, 2}, {10 * tick.Second, 3}, {2 * PeerIdle, 3}} {
		if n := count(start.Add(c.after)); n != c.want {
			t.Errorf("%d after %d ms, want %d", n, c.after/tick.Millisecond, c.want)
		}
	}
	limits.Rate = 5 // a reload
	if n := count(start.Add(3 * PeerIdle)); n != 5 {
		t.Errorf("%d with the new rate, want 5", n)
	}
}

// TestManyAddresses: an attacker holds connections from thousands of addresses of a /64, of /64s of a /48, and of /48s.
// The number of accounts stays limited, peers of other networks can still connect, and the accounts are removed once
// they are idle.
func TestManyAddresses(t *testing.T) {
	p := NewPeers(nil)
	honest := func(a string) {
		t.Helper()
		h, err := p.Begin(addr(a), start)
		if err != nil {
			t.Errorf("an honest peer: %v", err)
			return
		}
		h.Established()
		h.End(start)
	}
	var charges []*Charge
	hold := func(a netip.Addr) {
		if h, err := p.Begin(a, start); err == nil {
			charges = append(charges, h)
		}
		p.BeginHalfOpen(a, start)
	}
	v6 := func(site, link, host int) netip.Addr {
		return netip.AddrFrom16([16]byte{
			0x20, 1, 2: byte(site >> 16), byte(site >> 8), byte(site), 6: byte(link >> 8),
			byte(link), 14: byte(host >> 8), byte(host),
		})
	}
	for i := range 5000 {
		hold(v6(1, 0, i)) // one /64
	}
	if len(charges) != DefaultPeer.Startup {
		t.Errorf("one /64 has %d connections, want %d", len(charges), DefaultPeer.Startup)
	}
	honest("2600::1")
	for i := range 5000 {
		hold(v6(2, i, 0)) // one /48
	}
	if n := len(charges) - DefaultPeer.Startup; n != DefaultNetwork.Startup {
		t.Errorf("one /48 has %d connections, want %d", n, DefaultNetwork.Startup)
	}
	honest("2600::1")
	for i := range MaxNetworks + 5000 {
		hold(v6(100+i, 0, 0))
		hold(v6(100+i, 1, 0))
	}
	if len(p.accounts) > MaxPeers+MaxNetworks || p.peers > MaxPeers {
		t.Errorf("%d accounts, %d of peers", len(p.accounts), p.peers)
	}
	honest("2600::1")
	honest("192.0.2.1")
	if list, _ := p.State(); len(list) != MaxPeersShown {
		t.Errorf("%d accounts are shown", len(list))
	}
	for _, h := range charges {
		h.Established()
		h.End(start)
	}
	for i := range 5000 {
		p.EndHalfOpen(v6(1, 0, i), start)
		p.EndHalfOpen(v6(2, i, 0), start)
	}
	for i := range MaxNetworks + 5000 {
		p.EndHalfOpen(v6(100+i, 0, 0), start)
		p.EndHalfOpen(v6(100+i, 1, 0), start)
	}
	p.Begin(addr("2600::1"), start.Add(2*PeerIdle))
	if len(p.accounts) != 2 || p.peers != 1 || p.rest.n[startup]+p.rest.n[established] != 0 {
		t.Errorf("%d accounts are left, %d of peers, the rest %+v", len(p.accounts), p.peers,
			p.rest.n)
	}
}

func BenchmarkBegin(b *testing.B) {
	p := NewPeers(nil)
	a := addr("192.0.2.1")
	b.ReportAllocs()
	for b.Loop() {
		h, _ := p.Begin(a, start)
		h.Established()
		h.End(start)
	}
}
