package ipsec

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"xwarp/engine/esp"
	"xwarp/engine/host/xfrm"
	"xwarp/engine/stack"
	"xwarp/ring"
	"xwarp/tcp"
	"xwarp/tcp/checksum"
	"xwarp/tcp/ip"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// stream is an Upper that sends continuously, or receives.
type stream struct {
	sends    bool
	received int
}

func (u *stream) Next(room int) (int, bool) {
	if !u.sends {
		return 0, false
	}
	return room, true
}
func (u *stream) Fill(r seq.Range, dst []byte) (uint64, bool) {
	clear(dst[:r.Len()])
	return 0, true
}
func (u *stream) Attach(*stack.Endpoint)               {}
func (u *stream) Recover(any) bool                     { return false }
func (u *stream) Abandon(error)                        {}
func (u *stream) WantsCRC(seq.Num, [][]byte, int) bool { return false }
func (u *stream) Acked(seq.Num)                        {}
func (u *stream) Offer(_ seq.Num, _ [][]byte, n int, _ checksum.Known) int {
	u.received += n
	return n
}
func (u *stream) Advance(seq.Num)                                    {}
func (u *stream) Space() int                                         { return 1 << 20 }
func (u *stream) Start(*stack.Endpoint, seq.Num, seq.Num, tick.Time) {}
func (u *stream) Settle(tick.Time)                                   {}
func (u *stream) Event(tcp.Events, tick.Time)                        {}
func (u *stream) Expire(tick.Time)                                   {}
func (u *stream) Deadline() tick.Time                                { return tick.Never }

// host is a stack with a Manager, and the kernel that an IKE daemon configures.
type host struct {
	net   *network
	i     int
	s     *stack.Stack
	m     *Manager
	k     *ring.FakeKernel
	state xfrm.Snapshot

	acquired, soft, hard, accounted int
	steered                         map[uint32]bool
}

func (h *host) Request(dst ip.Addr) { h.s.SetHop(dst, mac(1-h.i), nil) }
func (h *host) Forget(ip.Addr)      {}

func (h *host) AddSA(local, remote netip.Addr, spi uint32) error {
	h.steered[spi] = true
	return nil
}

func (h *host) RemoveSA(local, remote netip.Addr, spi uint32) error {
	delete(h.steered, spi)
	return nil
}

func (h *host) Acquire(*xfrm.Policy) error {
	h.acquired++
	if h.net.ike {
		h.net.rekey()
	}
	return nil
}

func (h *host) Expire(sa *xfrm.SA, hard bool) error {
	if hard {
		h.hard++
	} else if h.soft++; h.net.ike {
		h.net.rekey()
	}
	return nil
}

func (h *host) Account(*xfrm.SA, uint64, uint64) error { h.accounted++; return nil }

// network has two hosts, and acts as the IKE daemons of both.
type network struct {
	t      *testing.T
	h      [2]*host
	now    tick.Time
	ike    bool // the daemons respond
	limits esp.Limits
	hides  bool // new SAs hide the DSCP
	spi    uint32
	later  []func() // requests to the kernel, which run after the stacks' turns
	clear  int      // frames that are not ESP
}

func addr(i int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)}) }
func mac(i int) [6]byte     { return [6]byte{2, 5: byte(i + 1)} }

func newNetwork(t *testing.T, rules []Rule) *network {
	t.Helper()
	n := &network{t: t, now: tick.Time(tick.Second), spi: 0x1000}
	for i := range n.h {
		h := &host{net: n, i: i, steered: map[uint32]bool{},
			k: ring.NewFakeKernel(ring.FakeConfig{Budget: 256})}
		n.h[i] = h
		h.m = New(Config{Rules: rules, Kernel: h, Steering: h, Random: rand.Uint64,
			Ask: func(f func()) { n.later = append(n.later, f) }})
		sock, err := ring.OpenFake(ring.Config{RxFrames: 256, TxSlots: 256,
			TxSlot: ring.SlotFor(1522)}, h.k)
		if err != nil {
			t.Fatal(err)
		}
		h.s, err = stack.New(stack.Config{Port: sock, MAC: mac(i), MTU: 1500, Resolver: h,
			IPsec: h.m})
		if err != nil {
			t.Fatal(err)
		}
		h.m.Use(h.s)
		host := netip.PrefixFrom(addr(i), 32)
		h.state.Policies = []*xfrm.Policy{{Out: true, Local: host,
			Remote: netip.PrefixFrom(addr(1-i), 32)}}
		h.m.Update(&h.state)
	}
	return n
}

// rekey installs a new pair of SAs. Of the old SAs it keeps the latest outbound one and the latest two inbound ones of
// each host.
func (n *network) rekey() {
	for i, h := range n.h {
		n.spi++
		key := make([]byte, 20)
		for j := range key {
			key[j] = byte(rand.Uint32())
		}
		sa := xfrm.SA{SA: esp.SA{SPI: n.spi, Keymat: key, ESN: true, Limits: n.limits},
			Src: addr(i), Dst: addr(1 - i), Window: 64, HideDSCP: n.hides}
		out, in := sa, sa
		peer := n.h[1-i]
		h.state.Outbound = append(tail(h.state.Outbound, 1), &out)
		peer.state.Inbound = append(tail(peer.state.Inbound, 2), &in)
	}
	for _, h := range n.h {
		h.m.Update(&h.state)
	}
}

func tail(list []*xfrm.SA, n int) []*xfrm.SA {
	return append([]*xfrm.SA(nil), list[max(0, len(list)-n):]...)
}

func (n *network) turn() {
	n.t.Helper()
	for i, h := range n.h {
		n.now = n.now.Add(20 * tick.Microsecond)
		h.s.Step(n.now)
		for f, ok := h.k.Take(nil); ok; f, ok = h.k.Take(nil) {
			if f[ip.EthernetLen+9] != ip.ProtoESP {
				n.clear++
			}
			n.h[1-i].k.Inject(f)
		}
	}
	for len(n.later) > 0 {
		f := n.later[0]
		n.later = n.later[1:]
		f()
	}
}

func (n *network) turns(times int) {
	for range times {
		n.turn()
	}
}

// connect starts a stream from the first host to the second.
func (n *network) connect() (e *stack.Endpoint, to *stream) {
	n.t.Helper()
	to = &stream{}
	cfg := tcp.Config{RcvSpace: 1 << 20, RcvSpaceMax: 1 << 20}
	t := tcp.Tuple{Local: ip.Addr(addr(0).As16()), Remote: ip.Addr(addr(1).As16()),
		LocalPort: 1024, RemotePort: 7}
	l := &stack.ListenConfig{Conn: cfg, Accept: func(*tcp.Tuple) (stack.Upper, error) {
		return to, nil
	}}
	if _, err := n.h[1].s.Listen(t.Remote, 7, l, n.now); err != nil {
		n.t.Fatal(err)
	}
	e, err := n.h[0].s.Connect(t, &cfg, &stream{sends: true}, n.now)
	if err != nil {
		n.t.Fatal(err)
	}
	return e, to
}

func (n *network) drops(t *testing.T) {
	t.Helper()
	for i, h := range n.h {
		if s := h.s.Stats(); s.DropESP+s.DropNoSA+s.DropPolicy > 0 || n.clear > 0 {
			t.Errorf("host %d: %d frames in the clear, %+v", i, n.clear, s)
		}
	}
}

var everything = []Rule{{}}

func TestConnectAsksForSAs(t *testing.T) {
	n := newNetwork(t, everything)
	e, to := n.connect()
	n.turns(20)
	if h := n.h[0]; h.acquired != 1 || e.Conn().State() != tcp.SynSent {
		t.Fatalf("%d requests, %v", h.acquired, e.Conn().State())
	}
	for range 100 { // no reply: the interval of requests grows
		n.now = n.now.Add(tick.Second)
		n.turn()
	}
	if a := n.h[0].acquired; a < 5 || a > 10 {
		t.Errorf("%d requests in 100 s", a)
	}
	n.ike = true
	n.now = n.now.Add(maxRetry)
	for range 300 {
		n.now = n.now.Add(100 * tick.Millisecond)
		n.turn()
	}
	if e.Conn().State() != tcp.Established || to.received == 0 {
		t.Errorf("%v, %d bytes arrived", e.Conn().State(), to.received)
	}
	if n.h[1].accounted == 0 || n.h[0].accounted == 0 {
		t.Error("the traffic is not reported to the kernel")
	}
	n.drops(t)
}

//req:rfc5042-5.4.5-1
func TestSoftLimitsRekeyWithoutLoss(t *testing.T) {
	n := newNetwork(t, everything)
	n.ike, n.limits = true, esp.Limits{SoftPackets: 100, HardPackets: 2000}
	e, to := n.connect()
	n.turns(2000)
	if n.h[0].soft < 10 || n.h[0].hard+n.h[1].hard > 0 || n.h[0].acquired != 1 {
		t.Errorf("%+v", n.h[0])
	}
	if sent, first := n.h[0].s.Stats().TxPayload, e.Conn().Counters().BytesOut; sent != first ||
		to.received == 0 {
		t.Errorf("%d bytes left, %d for the first time, %d arrived", sent, first, to.received)
	}
	for _, h := range n.h {
		ins, outs := 0, 0
		h.m.EachSA(func(_ *xfrm.SA, in *esp.In, _ *esp.Out, _ bool) {
			if in != nil {
				ins++
			} else {
				outs++
			}
		})
		if ins > 3 || outs > 2 || len(h.steered) != ins+outs ||
			len(h.m.flows) != 1 {
			t.Errorf("%d SAs in, %d out, %d steered, %d flows", ins, outs,
				len(h.steered), len(h.m.flows))
		}
	}
	n.drops(t)
}

// TestHardLimitEndsSending: if the daemon does not respond in time, the SA reaches its hard limit, which the Manager
// reports to the kernel once. The connection stays established, and continues with a later SA.
func TestHardLimitEndsSending(t *testing.T) {
	n := newNetwork(t, everything)
	n.ike, n.limits = true, esp.Limits{SoftPackets: 50, HardPackets: 100}
	e, to := n.connect()
	n.turns(3)
	n.ike = false
	n.turns(500)
	if h := n.h[0]; h.hard != 1 || h.soft != 1 || e.Conn().State() != tcp.Established {
		t.Errorf("%d hard, %d soft, %v", h.hard, h.soft, e.Conn().State())
	}
	n.h[0].m.Update(&n.h[0].state) // the SA still exists, but is not used again
	before := to.received
	n.ike, n.limits = true, esp.Limits{}
	for range 100 {
		n.now = n.now.Add(tick.Second)
		n.turn()
	}
	if to.received == before {
		t.Error("the stream does not go on")
	}
}

// TestModesStandSideBySide: rules for some ports have another mode. A connection uses the flow of its mode, has no SA
// for sending after the SAs are deleted, and continues with new SAs.
func TestModesStandSideBySide(t *testing.T) {
	n := newNetwork(t, []Rule{{Ports: []uint16{7}}, {Mode: esp.Tunnel}})
	n.ike = true
	e, to := n.connect()
	n.turns(50)
	tunnel := tcp.Tuple{Local: ip.Addr(addr(0).As16()), Remote: ip.Addr(addr(1).As16()),
		LocalPort: 1025, RemotePort: 8}
	if _, err := n.h[0].s.Connect(tunnel, &tcp.Config{}, &stream{}, n.now); err != nil {
		t.Fatal(err)
	}
	if f := n.h[0].m.Flow(&tunnel); f.Shape.Mode != esp.Tunnel || f == e.Flow() {
		t.Errorf("the tunnel's connection has a flow of mode %v", f.Shape.Mode)
	}
	n.ike = false
	for _, h := range n.h {
		h.state.Outbound = nil
		h.m.Update(&h.state)
	}
	if e.Flow().Out() != nil {
		t.Error("a deleted SA is used for sending")
	}
	n.turns(50)
	before := to.received
	n.ike = true
	for range 100 {
		n.now = n.now.Add(tick.Second)
		n.turn()
	}
	if to.received == before {
		t.Error("the stream does not go on")
	}
}

// TestReloadOfModeAndBack: a change of the mode ends the connections of the previous mode. After a change back, the
// remaining SAs serve new connections.
func TestReloadOfModeAndBack(t *testing.T) {
	n := newNetwork(t, everything)
	n.ike = true
	n.connect()
	n.turns(50)
	n.ike = false
	for _, rules := range [][]Rule{{{Mode: esp.Tunnel}}, everything} {
		for _, h := range n.h {
			if ended := h.m.SetRules(rules, n.now); ended != 1 && rules[0].Mode == esp.Tunnel {
				t.Errorf("%d connections ended", ended)
			}
		}
		n.turns(20)
		t0 := tcp.Tuple{Local: ip.Addr(addr(0).As16()), Remote: ip.Addr(addr(1).As16()),
			LocalPort: 1025 + uint16(rules[0].Mode), RemotePort: 7}
		e, err := n.h[0].s.Connect(t0, &tcp.Config{RcvSpace: 1 << 20}, &stream{sends: true}, n.now)
		if err != nil {
			t.Fatal(err)
		}
		n.turns(50)
		if up := e.Conn().State() == tcp.Established; up != (rules[0].Mode == esp.Transport) {
			t.Errorf("mode %v: %v", rules[0].Mode, e.Conn().State())
		}
	}
}

// TestOlderSAGoesOn: if the newest SA is deleted first, the previous one continues with its next sequence number.
func TestOlderSAGoesOn(t *testing.T) {
	n := newNetwork(t, everything)
	n.ike = true
	_, to := n.connect()
	n.turns(50)
	n.rekey()
	n.turns(50)
	for _, h := range n.h {
		h.state.Outbound = h.state.Outbound[:1]
		h.m.Update(&h.state)
	}
	before := to.received
	n.turns(50)
	if to.received == before {
		t.Error("no data arrives")
	}
	n.drops(t)
}

// TestFlowHidesDSCP: a flow hides the DSCP if the SA in use does, and the next SA changes that.
func TestFlowHidesDSCP(t *testing.T) {
	n := newNetwork(t, everything)
	n.ike = true
	n.connect()
	n.turns(50)
	for _, hides := range []bool{true, false, true} {
		n.hides = hides
		n.rekey()
		for i, h := range n.h {
			for _, f := range h.m.flows {
				if f.HideDSCP != hides {
					t.Errorf("host %d: HideDSCP is %v, want %v", i, f.HideDSCP, hides)
				}
			}
			if len(h.m.flows) == 0 {
				t.Errorf("host %d has no flow", i)
			}
		}
	}
}

// TestClearSegmentsMakeNoFlows: a flood of clear segments creates no flows and gets no reply.
func TestClearSegmentsMakeNoFlows(t *testing.T) {
	n := newNetwork(t, everything)
	n.connect()
	for i := range 1000 {
		h := ip.Header{Src: ip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)}),
			Dst: ip.Addr(addr(1).As16()), Proto: ip.ProtoTCP, TTL: 64, PayloadLen: wire.HeaderLen}
		syn := wire.Header{SrcPort: 40000, DstPort: 7, Seq: 1, Flags: wire.SYN, Window: 100}
		e := ip.Ethernet{Dst: mac(1), Src: mac(0), Type: ip.TypeIPv4}
		b := make([]byte, e.Len()+h.Len()+wire.HeaderLen)
		at := e.Put(b)
		at += h.Put(b[at:])
		syn.Put(b[at:])
		wire.PutChecksum(b[at:], wire.Finish(wire.Sum(b[at:], h.PseudoSum(wire.HeaderLen))))
		n.h[1].k.Inject(b)
		n.turn()
	}
	if s := n.h[1].s.Stats(); s.DropPolicy != 1000 || s.TxFrames != 0 || len(n.h[1].m.flows) != 0 {
		t.Errorf("%d dropped, %d answers, %d flows", s.DropPolicy, s.TxFrames, len(n.h[1].m.flows))
	}
}

func TestRules(t *testing.T) {
	prefix := netip.MustParsePrefix
	m := New(Config{Rules: []Rule{
		{Remote: []netip.Prefix{prefix("192.0.2.128/25")}, Clear: true},
		{Remote: []netip.Prefix{prefix("192.0.2.0/24")}, Ports: []uint16{4791}},
		{Remote: []netip.Prefix{prefix("2001:db8::/32")}, Mode: esp.Tunnel},
	}})
	for _, c := range []struct {
		remote string
		port   uint16
		want   bool
		mode   esp.Mode
	}{
		{"192.0.2.200", 4791, false, 0}, {"192.0.2.5", 4791, true, esp.Transport},
		{"192.0.2.5", 80, false, 0}, {"198.51.100.1", 4791, false, 0},
		{"2001:db8::7", 80, true, esp.Tunnel},
	} {
		remote := netip.MustParseAddr(c.remote)
		t0 := tcp.Tuple{Local: ip.AddrFrom4([4]byte{192, 0, 2, 1}), Remote: ip.Addr(remote.As16()),
			LocalPort: 40000, RemotePort: c.port}
		f := m.Flow(&t0)
		if (f != nil) != c.want || f != nil && (f.Shape.Mode != c.mode ||
			f.Shape.OuterV6 != remote.Is6()) {
			t.Errorf("%s port %d: %+v", c.remote, c.port, f)
		}
		t0.LocalPort, t0.RemotePort = t0.RemotePort, t0.LocalPort
		if (m.Flow(&t0) != nil) != c.want {
			t.Errorf("%s from port %d: another answer", c.remote, c.port)
		}
	}
}

// TestKeysOfDeletedSAsAreDiscarded: the key of a deleted SA is discarded, even if the SA is in use, and Close discards
// all keys.
func TestKeysOfDeletedSAsAreDiscarded(t *testing.T) {
	n := newNetwork(t, everything)
	n.ike = true
	n.connect()
	n.turns(50)
	opens := func(out *esp.Out) bool {
		_, err := out.Seal(make([]byte, 256), 100, ip.ProtoTCP)
		return err == nil
	}
	m, state := n.h[0].m, n.h[0].state
	old, in := m.sas[state.Outbound[0]].out, m.sas[state.Inbound[0]].in
	peer, err := esp.NewOut(&state.Inbound[0].SA, 0)
	if err != nil {
		t.Fatal(err)
	}
	arrives := func() error {
		b := make([]byte, 256)
		var size int
		for range 1 << 16 { // to a number beyond those that have arrived
			size, _ = peer.Seal(b, 100, ip.ProtoTCP)
		}
		_, _, err := in.Open(b[:size])
		return err
	}
	if err := arrives(); err != nil || !opens(old) {
		t.Fatal("the SAs are of no use:", err)
	}
	n.ike = false
	state.Outbound, state.Inbound = nil, nil
	m.Update(&state)
	n.turns(10)
	if opens(old) {
		t.Error("a deleted SA has its key")
	}
	if err := arrives(); err != esp.ErrIntegrity {
		t.Error("a deleted SA receives:", err)
	}
	last := n.h[1].m.sas[n.h[1].state.Outbound[0]].out
	n.h[1].m.Close()
	if opens(last) {
		t.Error("a closed Manager has keys")
	}
}
