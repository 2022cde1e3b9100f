package stack

import (
	"encoding/binary"
	"slices"
	"testing"

	"xwarp/tcp"
	"xwarp/tcp/ip"
	"xwarp/tcp/wire"
)

// TestAddressesOfSYNs sends SYNs from and to addresses of all kinds (RFC 9293, MUST-57 and MUST-63; RFC 1122, 3.2.1.3).
// A SYN from another host to a local address gets a SYN-ACK. All others are dropped and counted, and an ACK gets no
// RST.
//
//req:rfc9293-MUST-43 rfc9293-MUST-63 rfc9293-MUST-57
func TestAddressesOfSYNs(t *testing.T) {
	own, own6 := v4(192, 0, 2, 1), ip.Addr{0x20, 1, 0x0d, 0xb8, 15: 1}
	peer, peer6 := v4(198, 51, 100, 9), ip.Addr{0x20, 1, 0x0d, 0xb8, 7: 9, 15: 2}
	for _, c := range []struct {
		name     string
		from, to ip.Addr
		answered bool
		drop     func(*Stats) uint64
	}{
		{"another host", peer, own, true, nil},
		{"another host, IPv6", peer6, own6, true, nil},
		{"a neighbour", v4(192, 0, 2, 254), own, true, nil},
		{"the other end of a /31", v4(203, 0, 113, 1), v4(203, 0, 113, 0), true, nil},
		{"an address behind us", peer, v4(203, 0, 113, 77), false, notLocal},
		{"an address behind us, IPv6", peer6, ip.Addr{0x20, 1, 0x0d, 0xb8, 15: 77}, false,
			notLocal},
		{"an address of a prefix that is ours", peer, v4(203, 0, 114, 77), true, nil},
		{"an address of a prefix that is ours, IPv6", peer6, ip.Addr{0x20, 1, 0x0d, 0xb8, 5: 1,
			15: 77}, true, nil},
		{"from a prefix that is ours", v4(203, 0, 114, 77), own, false, source},
		{"from loopback", v4(127, 0, 0, 1), own, false, source},
		{"to loopback", peer, v4(127, 0, 0, 1), false, source},
		{"from this network", v4(0, 1, 2, 3), own, false, source},
		{"from a group", v4(224, 0, 0, 1), own, false, source},
		{"from reserved", v4(240, 0, 0, 1), own, false, source},
		{"from limited broadcast", v4(255, 255, 255, 255), own, false, source},
		{"from our network's broadcast", v4(192, 0, 2, 255), own, false, source},
		{"from our other network's broadcast", v4(10, 255, 255, 255), own, false, source},
		{"from ourselves", own, own, false, source},
		{"from another address of ours", v4(10, 0, 0, 1), own, false, source},
		{"from the unspecified address", ip.Addr{}, own6, false, source},
		{"from loopback, IPv6", ip.Addr{15: 1}, own6, false, source},
		{"from a group, IPv6", ip.Addr{0: 0xff, 1: 2, 15: 1}, own6, false, source},
		{"from ourselves, IPv6", own6, own6, false, source},
	} {
		h := newHost(t, nil)
		h.s.SetLocal([]Prefix{
			{Addr: own, Bits: 24}, {Addr: v4(10, 0, 0, 1), Bits: 8}, {Addr: v4(203, 0, 113, 0),
				Bits: 31}, {Addr: v4(127, 0, 0, 1), Bits: 8},
			{Addr: own6, Bits: 64}, {Addr: v4(203, 0, 114, 0), Bits: 24, All: true},
			{Addr: ip.Addr{0x20, 1, 0x0d, 0xb8, 5: 1}, Bits: 48, All: true},
		})
		h.listen(ListenConfig{})
		at := tcp.Tuple{Local: c.from, Remote: c.to, LocalPort: 7, RemotePort: 7}
		out := h.give(frame(macs[1], at, wire.Header{Seq: 1, Flags: wire.SYN}))
		if got := slices.ContainsFunc(out, synAck); got != c.answered {
			t.Errorf("%s: answered %v", c.name, got)
		}
		if st := h.s.Stats(); c.drop != nil && (c.drop(&st) != 1 || len(out) != 0) {
			t.Errorf("%s: %d frames leave, %+v", c.name, len(out), st)
		}
		out = h.give(frame(macs[1], at, wire.Header{Seq: 1, Ack: 9, Flags: wire.ACK})) // no reset either
		if !c.answered && len(out) > 0 {
			t.Errorf("%s: an ACK is answered with % x", c.name, out[0])
		}
	}
}

func notLocal(s *Stats) uint64 { return s.DropNotLocal }
func source(s *Stats) uint64   { return s.DropSource }

// TestNoAddressAtAll: until the stack gets its addresses, any destination is local. A host that lost its last address
// has none.
func TestNoAddressAtAll(t *testing.T) {
	h := newHost(t, nil)
	h.listen(ListenConfig{})
	syn := func(port uint16) bool {
		at := tcp.Tuple{Local: v4(198, 51, 100, 9), Remote: v4(192, 0, 2, 1), LocalPort: port,
			RemotePort: 7}
		return slices.ContainsFunc(h.give(frame(macs[1], at, wire.Header{Seq: 1, Flags: wire.SYN})),
			synAck)
	}
	if !syn(1000) {
		t.Error("no reply before SetLocal was called")
	}
	h.s.SetLocal(nil)
	if syn(1001) {
		t.Error("a reply, although the host has no address")
	}
}

// TestVLAN sends SYNs with tags of all kinds to stacks without a VLAN and on VLAN 100. The stack replies only to those
// of its VLAN, with its tag, and counts the others.
func TestVLAN(t *testing.T) {
	tag := func(tci uint16) ip.VLANTag { return ip.VLANTag{TPID: ip.TypeVLAN, TCI: tci} }
	service := func(tci uint16) ip.VLANTag { return ip.VLANTag{TPID: ip.TypeVLANS, TCI: tci} }
	for _, c := range []struct {
		name     string
		vlan     uint16
		tags     []ip.VLANTag
		answered bool
	}{
		{"none", 0, nil, true},
		{"priority only", 0, []ip.VLANTag{tag(5 << 13)}, true},
		{"another's", 0, []ip.VLANTag{tag(666)}, false},
		{"another's within priority", 0, []ip.VLANTag{tag(5 << 13), tag(666)}, false},
		{"none, and one is wanted", 100, nil, false},
		{"the one", 100, []ip.VLANTag{tag(100)}, true},
		{"the one with a priority", 100, []ip.VLANTag{tag(3<<13 | 100)}, true},
		{"the one within priority", 100, []ip.VLANTag{tag(0), tag(100)}, true},
		{"priority only, and one is wanted", 100, []ip.VLANTag{tag(1 << 13)}, false},
		{"another one", 100, []ip.VLANTag{tag(101)}, false},
		{"a service provider's", 100, []ip.VLANTag{service(100)}, false},
		{"the one within a service provider's", 100, []ip.VLANTag{service(9), tag(100)}, false},
		{"the one twice", 100, []ip.VLANTag{tag(100), tag(100)}, false},
	} {
		h := newHost(t, func(cfg *Config) { cfg.VLAN = c.vlan })
		h.listen(ListenConfig{})
		at := tcp.Tuple{Local: v4(198, 51, 100, 9), Remote: v4(192, 0, 2, 1), LocalPort: 1000,
			RemotePort: 7}
		out := h.give(frame(macs[1], at, wire.Header{Seq: 1, Flags: wire.SYN}, c.tags...))
		dropped := h.s.Stats().DropVLAN
		if c.answered != (len(out) == 1) || c.answered != (dropped == 0) {
			t.Errorf("%s: %d answers, %d dropped", c.name, len(out), dropped)
		}
		if c.answered &&
			(ip.EtherType(binary.BigEndian.Uint16(out[0][12:])) == ip.TypeVLAN) != (c.vlan != 0) {
			t.Errorf("%s: the answer is % x", c.name, out[0][:18])
		}
	}
}

// TestVLANOfConnection: frames of an established connection with another VLAN ID are dropped. Another priority still
// matches the expected header.
func TestVLANOfConnection(t *testing.T) {
	p := newPair(t, 100, false, tcp.Config{RcvSpace: 1 << 20, RcvSpaceMax: 1 << 20},
		[2]Upper{&endless{}, &endless{idle: true}})
	p.turn()
	before := p.s[1].Stats()
	p.lose = func(from int, f []byte) bool {
		if from == 0 {
			binary.BigEndian.PutUint16(f[14:], 6<<13|101)
		}
		return false
	}
	p.turn()
	after := p.s[1].Stats()
	if n := after.DropVLAN; n == 0 || after.RxFrames-before.RxFrames != n {
		t.Errorf("%d frames of another VLAN were dropped of %d", n, after.RxFrames-before.RxFrames)
	}
	f := append([]byte(nil), p.last[0]...)
	e := p.s[1].conns[tcp.Tuple{Local: pairAddr(false, 1), Remote: pairAddr(false, 0), LocalPort: 7,
		RemotePort: 1024}]
	for tci, want := range map[uint16]bool{100: true, 5<<13 | 100: true, 101: false, 0: false} {
		binary.BigEndian.PutUint16(f[14:], tci)
		if _, got := e.expect.matches(f, len(f)); got != want {
			t.Errorf("tag %#x: taken %v, want %v", tci, got, want)
		}
	}
}

// TestIdentification: no frame has an identification (RFC 6864, 4.1), neither of a connection nor a reset, and all have
// DF set.
func TestIdentification(t *testing.T) {
	frames := 0
	check := func(f []byte) {
		frames++
		if h := f[ip.EthernetLen:]; binary.BigEndian.Uint16(h[4:]) != 0 || h[6] != 0x40 ||
			wire.Fold(wire.Sum(h[:ip.Len4], 0)) != 0xffff {
			t.Fatalf("IP header % x", h[:ip.Len4])
		}
	}
	p := newPair(t, 0, false, tcp.Config{RcvSpace: 1 << 20, RcvSpaceMax: 1 << 20},
		[2]Upper{&endless{}, &endless{}})
	p.lose = func(_ int, f []byte) bool { check(f); return false }
	for range 20 {
		p.turn()
	}
	h := newHost(t, nil)
	h.listen(ListenConfig{})
	at := tcp.Tuple{Local: v4(198, 51, 100, 9), Remote: v4(192, 0, 2, 1), LocalPort: 1000,
		RemotePort: 7}
	for _, x := range []wire.Header{{Seq: 1, Flags: wire.SYN}, {Seq: 5, Ack: 5, Flags: wire.ACK}} {
		for _, f := range h.give(frame(macs[1], at, x)) {
			check(f)
		}
	}
	if frames < 100 {
		t.Errorf("only %d frames", frames)
	}
}
