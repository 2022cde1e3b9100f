package bpf

import (
	"net"
	"net/netip"
	"sync"
	"testing"

	"github.com/google/gopacket/layers"
	"github.com/vishvananda/netlink"
)

func parsePrefixes(ss ...string) (ps []netip.Prefix) {
	for _, s := range ss {
		ps = append(ps, netip.MustParsePrefix(s))
	}
	return ps
}

// TestLocalAddresses: a listener for any address serves the current addresses of this host. Other listeners and flows
// serve their own address, also if SetLocal does not include it.
func TestLocalAddresses(t *testing.T) {
	b := newBench(t, true)
	any4 := frame(ether4(), ip4(local4, protoTCP), segmentTo(any4Port))
	any6 := frame(ether6(), ip6(local6, protoTCP), segmentTo(any6Port))
	for _, c := range []struct {
		name  string
		local []netip.Prefix
		v4    Outcome
		v6    Outcome
	}{
		{"nothing", nil, PassNotLocal, PassNotLocal},
		{"one each", hosts(local4, local6), Listener, Listener},
		{"others", hosts(other4, other6), PassNotLocal, PassNotLocal},
		{"one of them", hosts(other4, local6), PassNotLocal, Listener},
		{"mapped", []netip.Prefix{netip.PrefixFrom(netip.AddrFrom16(local4.As16()), 128)}, Listener,
			PassNotLocal},
		{"all of IPv6 are not those of IPv4", parsePrefixes("::/0"), PassNotLocal, Listener},
		{"all of IPv4", parsePrefixes("0.0.0.0/0"), Listener, PassNotLocal},
		{"networks", parsePrefixes("192.0.2.0/24", "2001:db8::/64", "192.0.2.128/25"), Listener,
			Listener},
		{"not masked", parsePrefixes("192.0.2.99/24", "2001:db8::99/64"), Listener, Listener},
	} {
		if err := b.SetLocal(c.local); err != nil {
			t.Fatal(c.name, err)
		}
		t.Run(c.name, func(t *testing.T) {
			b.TB = t
			b.expect(any4, c.v4)
			b.expect(any6, c.v6)
			b.expect(frame(ether4(), ip4(local4, protoTCP), segmentTo(listenPort)), Listener)
			b.expect(frame(ether4(), ip4(local4, protoTCP), flowSegment()), Flow)
		})
	}
}

// TestPeers: listeners serve only the configured peers. The list does not apply to flows, which this host opened, or to
// the host's other ports.
func TestPeers(t *testing.T) {
	b := newBench(t, true)
	for _, c := range []struct {
		name   string
		peers  []netip.Prefix
		v4, v6 Outcome
	}{
		{"everybody", nil, Listener, Listener},
		{"others", hosts(other4, other6), DropPeer, DropPeer},
		{"one of them", hosts(other4, remote6), DropPeer, Listener},
		{"all of IPv6 are not those of IPv4", parsePrefixes("::/0"), DropPeer, Listener},
		{"networks", parsePrefixes("198.51.100.0/24", "2001:db8:9::/48"), Listener, Listener},
		{"everybody again", nil, Listener, Listener},
	} {
		if err := b.SetPeers(c.peers); err != nil {
			t.Fatal(c.name, err)
		}
		t.Run(c.name, func(t *testing.T) {
			b.TB = t
			for _, port := range []layers.TCPPort{listenPort, anyPort} {
				b.expect(frame(ether4(), ip4(local4, protoTCP), segmentTo(port)), c.v4)
				b.expect(frame(ether6(), ip6(local6, protoTCP), segmentTo(port)), c.v6)
			}
			b.expect(frame(ether4(), ip4(local4, protoTCP), flowSegment()), Flow)
			b.expect(frame(ether4(), ip4(local4, protoTCP), segmentTo(22)), PassNoMatch)
		})
	}
}

// TestProtected: unencrypted segments from addresses that IPsec protects reach neither listener nor flow. The host's
// other ports are not affected, and ESP is received.
func TestProtected(t *testing.T) {
	b := newBench(t, true)
	prefixes := func(in string, out ...string) map[netip.Prefix]bool {
		m := map[netip.Prefix]bool{netip.MustParsePrefix(in): true}
		for _, p := range parsePrefixes(out...) {
			m[p] = false
		}
		return m
	}
	for _, c := range []struct {
		name string
		from map[netip.Prefix]bool
		v4   bool
		v6   bool
	}{
		{"nobody", nil, false, false},
		{"all of IPv4", prefixes("0.0.0.0/0"), true, false},
		{"all of IPv6", prefixes("::/0"), false, true},
		{"all but one", prefixes("0.0.0.0/0", remote4.String()+"/32"), false, false},
		{"nobody again", nil, false, false},
	} {
		if err := b.SetProtected(c.from); err != nil {
			t.Fatal(c.name, err)
		}
		t.Run(c.name, func(t *testing.T) {
			b.TB = t
			or := func(drop bool, o Outcome) Outcome {
				if drop {
					return DropClear
				}
				return o
			}
			for _, port := range []layers.TCPPort{listenPort, anyPort} {
				b.expect(frame(ether4(), ip4(local4, protoTCP), segmentTo(port)),
					or(c.v4, Listener))
				b.expect(frame(ether6(), ip6(local6, protoTCP), segmentTo(port)),
					or(c.v6, Listener))
			}
			b.expect(frame(ether4(), ip4(local4, protoTCP), flowSegment()), or(c.v4, Flow))
			b.expect(frame(ether4(), ip4(local4, protoTCP), segmentTo(22)), PassNoMatch)
			b.expect(frame(ether4(), ip4(local4, layers.IPProtocolESP), esp(ourSPI)), ESP)
		})
	}
}

func TestPrefixesFull(t *testing.T) {
	s := load(t, Options{MaxPrefixes: 2}) // one of the two entries is mappedIPv4
	wantError(t, s.SetLocal(hosts(local4, other4)), ErrFull, "2 entries", "Options.MaxPrefixes")
	wantError(t, s.SetPeers(hosts(local4, other4)), ErrFull, "Options.MaxPrefixes")
	if err := s.SetLocal(hosts(other6)); err != nil {
		t.Error("no room after the list was shortened:", err)
	}
	wantError(t, s.SetLocal([]netip.Prefix{{}}), nil, "invalid")
}

// TestMAC: Attach sets the Ethernet address of the interface, and SetMAC changes it.
func TestMAC(t *testing.T) {
	l := newLab(t)
	b := newBench(t, true)
	ours := func() []byte { return frame(ether4(), ip4(local4, protoTCP), segmentTo(listenPort)) }
	b.expect(ours(), Listener)
	_, err := b.Attach(l.ifindex(), ModeNative)
	l.must(err)
	b.last, err = b.Counters() // the peer's kernel may have sent something
	l.must(err)
	b.wantAction(ours(), xdpPass)
	b.wantAction(to(l.host.Attrs().HardwareAddr, ours()), xdpRedirect)
	moved := net.HardwareAddr{2, 0, 0, 0, 0xbe, 0xef}
	l.must(netlink.LinkSetHardwareAddr(l.host, moved))
	l.must(b.SetMAC([6]byte(moved)))
	b.wantAction(to(moved, ours()), xdpRedirect)
	b.wantAction(to(l.host.Attrs().HardwareAddr, ours()), xdpPass)
}

// wantAction runs a frame and checks the action only: while the program is attached, it counts other frames too.
func (b *bench) wantAction(frame []byte, want uint32) {
	b.Helper()
	if got := b.action(frame); got != want {
		b.Errorf("action %d, want %d\n% x", got, want, frame)
	}
}

// TestMethodsAfterClose: methods fail with ErrClosed after Close. Other goroutines call one during Close, for the race
// detector.
func TestMethodsAfterClose(t *testing.T) {
	s := load(t, Options{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				if _, err := s.Counters(); err != nil {
					wantError(t, err, ErrClosed)
					return
				}
			}
		})
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	listener, flow := at(local4, 1), at(remote4, 2)
	_, counters := s.Counters()
	_, noSocketDrops := s.NoSocketDrops(0)
	_, attach := s.Attach(1, ModeAuto)
	for name, err := range map[string]error{
		"AddListener": s.AddListener(listener), "RemoveListener": s.RemoveListener(listener),
		"AddFlow":    s.AddFlow(listener, flow),
		"RemoveFlow": s.RemoveFlow(listener, flow), "SetSocket": s.SetSocket(0, 0),
		"RemoveSocket": s.RemoveSocket(0), "SetLocal": s.SetLocal(nil),
		"SetPeers": s.SetPeers(nil), "SetMAC": s.SetMAC([6]byte{}), "Counters": counters,
		"NoSocketDrops": noSocketDrops, "Attach": attach,
	} {
		t.Run(name, func(t *testing.T) { wantError(t, err, ErrClosed) })
	}
}
