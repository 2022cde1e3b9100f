package stack

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"xwarp/engine/esp"
	"xwarp/tcp"
	"xwarp/tcp/checksum"
	"xwarp/tcp/ip"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// checked is an Upper whose bytes depend on their sequence numbers.
type checked struct {
	endless
	t    *testing.T
	kept int
}

func byteAt(at seq.Num) byte { return byte(uint32(at) * 0x9e3779b1 >> 24) }

func (c *checked) Fill(r seq.Range, dst []byte) (uint64, bool) {
	for i := range r.Len() {
		dst[i] = byteAt(r.Start.Add(i))
	}
	return 0, false
}

func (c *checked) Offer(at seq.Num, pieces [][]byte, n int, _ checksum.Known) int {
	for i, b := range bytes.Join(pieces, nil)[:n] {
		if want := byteAt(at.Add(i)); b != want {
			c.t.Fatalf("byte %d is %#x, want %#x", at.Add(i), b, want)
		}
	}
	c.kept += n
	return n
}

// policy protects everything between two hosts, except for the ports in clear.
type policy struct {
	flow     Flow
	clear    map[uint16]bool // unprotected ports
	wantOut  int             // calls of Want because an SA is missing
	wantNext int             // calls of Want because an SA reached a limit
}

func (p *policy) Flow(t *tcp.Tuple) *Flow {
	if p.clear[t.LocalPort] || p.clear[t.RemotePort] {
		return nil
	}
	return &p.flow
}

func (p *policy) Prepare(*tcp.Tuple)  {}
func (p *policy) Expire(tick.Time)    {}
func (p *policy) Deadline() tick.Time { return tick.Never }

func (p *policy) Want(f *Flow, out *esp.Out) {
	if out == nil {
		p.wantOut++
	} else {
		p.wantNext++
	}
}

// espPair is a pair whose connection is protected.
type espPair struct {
	*pair
	t      *testing.T
	policy [2]*policy
	in     [2]*esp.In
	shape  esp.Shape
	next   uint32             // next SPI
	seen   map[[2]uint32]bool // SPI and sequence number of each frame
}

// newESPPair returns two stacks with a connection from the first to the second: established with SAs if keys is true,
// otherwise with a SYN that waits for an SA.
func newESPPair(t *testing.T, v6 bool, shape esp.Shape, upper [2]Upper, keys bool,
	change func(i int, c *Config)) *espPair {
	t.Helper()
	x := &espPair{t: t, shape: shape, next: 0x1000, seen: map[[2]uint32]bool{}}
	for i := range x.policy {
		outer := v6
		if shape.Mode == esp.Tunnel {
			outer = shape.OuterV6
		}
		x.policy[i] = &policy{flow: Flow{Shape: shape, Local: pairAddr(outer, i),
			Remote: pairAddr(outer, 1-i)}}
	}
	cfg := tcp.Config{RcvSpace: 1 << 20, RcvSpaceMax: 1 << 20}
	x.pair = newPairWith(t, v6, cfg, upper, func(i int, c *Config) {
		c.IPsec = x.policy[i]
		if change != nil {
			change(i, c)
		}
	})
	x.lose = x.inspect
	if keys {
		x.rekey(esp.Limits{})
		for range 8 {
			x.turn()
		}
		if s := x.e.conn.State(); s != tcp.Established {
			t.Fatal(s)
		}
	}
	return x
}

// rekey gives both ends new SAs; the old ones still receive.
func (x *espPair) rekey(limits esp.Limits) {
	x.t.Helper()
	for i := range x.s {
		x.next++
		key := make([]byte, 20)
		for j := range key {
			key[j] = byte(rand.Uint32())
		}
		sa := esp.SA{SPI: x.next, Mode: x.shape.Mode, ESN: true, Keymat: key, Limits: limits}
		in, err := esp.NewIn(&sa, 64)
		if err != nil {
			x.t.Fatal(err)
		}
		out, err := esp.NewOut(&sa, rand.Uint64())
		if err != nil {
			x.t.Fatal(err)
		}
		x.in[1-i] = in
		x.s[1-i].AddIn(&x.policy[1-i].flow, in)
		x.s[i].SetOut(&x.policy[i].flow, out)
	}
}

// inspect checks a sent frame: it is ESP, fits the link, and has a new sequence number.
func (x *espPair) inspect(from int, frame []byte) (lost bool) {
	x.t.Helper()
	var e ip.Ethernet
	var h ip.Header
	off, err := e.Decode(frame)
	if err != nil {
		x.t.Fatal(err)
	}
	at, err := h.Decode(frame[off:])
	if err != nil || h.Proto != ip.ProtoESP || len(frame) != off+at+h.PayloadLen {
		x.t.Fatalf("protocol %d leaves, %v", h.Proto, err)
	}
	if n := len(frame) - off; n > x.s[from].cfg.MTU {
		x.t.Fatalf("a packet of %d bytes leaves", n)
	}
	f := &x.policy[from].flow
	if h.Src != f.Local || h.Dst != f.Remote {
		x.t.Fatalf("from %v to %v", h.Src, h.Dst)
	}
	b := frame[off+at:]
	id := [2]uint32{binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])}
	if x.seen[id] {
		x.t.Fatalf("SPI %#x, number %d twice", id[0], id[1])
	}
	x.seen[id] = true
	return false
}

var shapes = []struct {
	v6    bool
	shape esp.Shape
	emss  int
}{
	{false, esp.Shape{}, 1414}, {true, esp.Shape{}, 1394},
	{false, esp.Shape{Mode: esp.Tunnel}, 1394},
	{true, esp.Shape{Mode: esp.Tunnel, OuterV6: true}, 1354},
	{false, esp.Shape{Mode: esp.Tunnel, OuterV6: true}, 1374},
	{true, esp.Shape{Mode: esp.Tunnel}, 1374},
}

// TestProtectedStream loses 2 % of the frames, repeats 2 % and changes 2 %, in every mode, with and without a VLAN. All
// bytes must arrive unchanged, and each repeated or changed frame must be dropped and counted by ESP.
func TestProtectedStream(t *testing.T) {
	for i, c := range shapes {
		t.Run(fmt.Sprintf("%v/inner IPv6 %v/outer IPv6 %v", c.shape.Mode, c.v6, c.shape.OuterV6),
			func(t *testing.T) {
				from, to := &checked{t: t}, &checked{t: t}
				to.idle = true
				x := newESPPair(t, c.v6, c.shape, [2]Upper{from, to}, true,
					func(_ int, cfg *Config) { cfg.VLAN = uint16(i % 2 * 7) })
				if got := x.e.EMSS(); got != c.emss {
					t.Errorf("EMSS %d, want %d", got, c.emss)
				}
				repeated, forged := 0, 0
				x.lose = func(from int, frame []byte) bool {
					x.inspect(from, frame)
					switch rand.IntN(50) {
					case 0:
						return true
					case 1:
						repeated++
						x.k[1-from].Inject(frame)
					case 2:
						forged++
						b := bytes.Clone(frame)
						b[len(b)-1-rand.IntN(60)] ^= 1 << rand.IntN(8)
						x.k[1-from].Inject(b)
					}
					return false
				}
				for range 3000 {
					x.turn()
				}
				if to.kept < 1<<20 {
					t.Errorf("only %d bytes arrived", to.kept)
				}
				x.lose = x.inspect
				for range 4 {
					x.turn()
				}
				var d esp.Drops
				for i := range x.in {
					if n := x.s[i].Stats(); n.DropNoSA+n.DropPolicy+n.DropChecksum > 0 {
						t.Errorf("stack %d: %+v", i, n)
					}
					d.Replayed += x.in[i].Drops.Replayed
					d.Forged += x.in[i].Drops.Forged
				}
				n := x.s[0].Stats().DropESP + x.s[1].Stats().DropESP
				if repeated == 0 || forged == 0 || d.Replayed != uint64(repeated) ||
					d.Forged != uint64(forged) || n != d.Replayed+d.Forged {
					t.Errorf("%d repeated, %d forged; refused %d: %+v", repeated, forged, n, d)
				}
			})
	}
}

// observed keeps the frames passed to a PlainObserver.
type observed struct{ sent, received [][]byte }

func (o *observed) Watches(segment []byte) bool { return len(segment) > 0 }

func (o *observed) Show(frame []byte, sent bool) {
	if sent {
		o.sent = append(o.sent, bytes.Clone(frame))
	} else {
		o.received = append(o.received, bytes.Clone(frame))
	}
}

// TestPlainObserver: the frames shown before encryption and those shown after decryption have the same segments and
// addresses.
func TestPlainObserver(t *testing.T) {
	for _, c := range shapes {
		var seen [2]observed
		from, to := &checked{t: t}, &checked{t: t}
		to.idle = true
		x := newESPPair(t, c.v6, c.shape, [2]Upper{from, to}, true, func(i int, c *Config) {
			c.Plain = &seen[i]
		})
		for range 20 {
			x.turn()
		}
		for i := range seen {
			sent, got := seen[i].sent, seen[1-i].received
			if len(got) < 10 {
				t.Fatalf("%+v: %d frames of host %d", c, len(got), i)
			}
			for j, f := range got {
				var e ip.Ethernet
				var want, is ip.Header
				off, _ := e.Decode(f)
				n, err := is.Decode(f[off:])
				m, _ := want.Decode(sent[j][off:])
				is.TTL, want.TTL = 0, 0
				if err != nil || is.Src != want.Src || is.Dst != want.Dst ||
					is.Proto != want.Proto || is.TOS != want.TOS ||
					!bytes.Equal(f[off+n:], sent[j][off+m:]) {
					t.Fatalf("%+v: frame %d of host %d: %+v, want %+v, %v", c, j, i, is, want, err)
				}
			}
		}
	}
}

// TestConnectionWaitsForSAs: a connection waits before there are SAs, and after they were deleted in the middle of a
// stream. Meanwhile no frame leaves. With new SAs it continues.
//
//req:rfc5044-9.4-1 rfc5042-5.4.5-2 rfc5041-8.4.2-4 rfc5040-8.2.2-4
func TestConnectionWaitsForSAs(t *testing.T) {
	from, to := &checked{t: t}, &checked{t: t}
	to.idle = true
	x := newESPPair(t, false, esp.Shape{}, [2]Upper{from, to}, false, nil)
	if p := x.policy[0]; p.wantOut != 1 || len(x.seen) != 0 || x.e.conn.State() != tcp.SynSent {
		t.Fatalf("%d requests, %d frames, %v", p.wantOut, len(x.seen), x.e.conn.State())
	}
	for range 3 {
		x.rekey(esp.Limits{})
		before := to.kept
		for range 200 {
			x.turn()
		}
		if to.kept == before {
			t.Fatal("no byte arrived")
		}
		for i := range x.s {
			x.s[i].SetOut(&x.policy[i].flow, nil)
		}
		n := len(x.seen)
		for range 20 {
			x.now = x.now.Add(tick.Second)
			x.turn()
		}
		if len(x.seen) != n || x.e.conn.State() != tcp.Established {
			t.Fatalf("%d frames left without an SA, %v", len(x.seen)-n, x.e.conn.State())
		}
	}
	if p := x.policy[0]; p.wantOut != 4 {
		t.Errorf("%d requests for an SA, want 4", p.wantOut)
	}
}

func TestRekeyLosesNothing(t *testing.T) {
	from, to := &checked{t: t}, &checked{t: t}
	to.idle = true
	x := newESPPair(t, true, esp.Shape{}, [2]Upper{from, to}, true, nil)
	for range 20 {
		old := x.in
		x.rekey(esp.Limits{})
		for range 50 {
			x.turn()
		}
		for i := range x.s {
			x.s[i].RemoveIn(&x.policy[i].flow, old[i])
		}
	}
	for i := range x.s {
		if n := x.s[i].Stats(); n.DropNoSA+n.DropESP+n.DropPolicy > 0 || len(x.s[i].inbound) != 1 {
			t.Errorf("%+v", n)
		}
	}
	sent, first := x.s[0].Stats().TxPayload, x.e.conn.Counters().BytesOut
	if sent != first {
		t.Errorf("%d bytes left, of which %d for the first time", sent, first)
	}
}

// TestLimitsAskForSuccessors: a soft limit requests a successor once, and a hard limit stops sending.
func TestLimitsAskForSuccessors(t *testing.T) {
	from, to := &checked{t: t}, &checked{t: t}
	to.idle = true
	x := newESPPair(t, false, esp.Shape{}, [2]Upper{from, to}, true, nil)
	x.rekey(esp.Limits{SoftPackets: 100, HardPackets: 300})
	n := len(x.seen)
	for range 400 {
		x.turn()
	}
	p := x.policy[0]
	if p.wantNext != 1 || p.wantOut != 2 || p.flow.Out() != nil {
		t.Errorf("%d requests for a successor, %d without an SA", p.wantNext, p.wantOut-1)
	}
	if n = len(x.seen) - n; n > 600 {
		t.Errorf("%d frames with two SAs for 300 each", n)
	}
	x.rekey(esp.Limits{})
	before := to.kept
	for range 50 {
		x.now = x.now.Add(tick.Second)
		x.turn()
	}
	if to.kept == before {
		t.Error("the stream does not go on with new SAs")
	}
}

// checkSAs compares the tables of SAs with each other and with the flow.
func (x *espPair) checkSAs(what string) {
	x.t.Helper()
	for i, s := range x.s {
		f := &x.policy[i].flow
		sending := 0
		if f.out != nil {
			sending = 1
		}
		if len(s.outbound) != sending {
			x.t.Fatalf("%s: host %d has %d flows that send, want %d", what, i, len(s.outbound),
				sending)
		}
		for k, f := range s.outbound {
			if f.out == nil || k != (saKey{f.Remote, f.out.SPI()}) {
				x.t.Fatalf("%s: host %d: the flow at %v does not send with it", what, i, k)
			}
		}
		for k, in := range s.inbound {
			if k != (saKey{in.flow.Local, in.sa.SPI()}) {
				x.t.Fatalf("%s: host %d: SA with SPI %#x at %v", what, i, in.sa.SPI(), k)
			}
		}
	}
}

// TestSAEventsInAnyOrder: SAs come, reach limits and are deleted while ICMP errors quote packets of all of them. The
// tables of SAs must stay consistent, and the stream must continue with new SAs.
func TestSAEventsInAnyOrder(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 0))
		shape := shapes[seed%uint64(len(shapes))]
		from, to := &checked{t: t}, &checked{t: t}
		to.idle = true
		x := newESPPair(t, shape.v6, shape.shape, [2]Upper{from, to}, true, nil)
		var sent [][]byte
		x.lose = func(i int, frame []byte) bool {
			if i == 0 {
				sent = append(sent[max(0, len(sent)-63):], bytes.Clone(frame))
			}
			return x.inspect(i, frame)
		}
		older := x.in
		events := []struct {
			name string
			do   func()
		}{
			{"turn", x.turn},
			{"rekey", func() { older = x.in; x.rekey(esp.Limits{}) }},
			{"rekey with a limit", func() { older = x.in; x.rekey(esp.Limits{HardPackets: 5}) }},
			{"delete the SA to send", func() { x.s[0].SetOut(&x.policy[0].flow, nil) }},
			{"delete an SA to receive", func() { x.s[1].RemoveIn(&x.policy[1].flow, older[1]) }},
			{"ICMP error", func() {
				if len(sent) > 0 {
					x.k[0].Inject(tooBig(t, sent[r.IntN(len(sent))], 1300+r.IntN(200)))
				}
			}},
		}
		for range 300 {
			e := events[r.IntN(len(events))]
			e.do()
			x.turn()
			x.checkSAs(fmt.Sprintf("seed %d, %s", seed, e.name))
		}
		x.rekey(esp.Limits{})
		before := to.kept
		for range 50 {
			x.now = x.now.Add(tick.Second)
			x.turn()
		}
		if to.kept == before {
			t.Errorf("seed %d: the stream does not continue with new SAs", seed)
		}
	}
}

// TestSPIOfAnotherAddress: each address of this host has its own SPIs (RFC 4301, 4.1). An SA of another address with
// the same SPI, and its deletion, do not disturb a connection.
func TestSPIOfAnotherAddress(t *testing.T) {
	from, to := &checked{t: t}, &checked{t: t}
	to.idle = true
	x := newESPPair(t, false, esp.Shape{}, [2]Upper{from, to}, true, nil)
	sa := esp.SA{SPI: x.in[1].SPI(), Keymat: make([]byte, 20)}
	other, err := esp.NewIn(&sa, 64)
	if err != nil {
		t.Fatal(err)
	}
	f := Flow{Local: v4(192, 0, 2, 77), Remote: x.policy[1].flow.Remote}
	continues := func(what string) {
		t.Helper()
		before := to.kept
		for range 50 {
			x.turn()
		}
		n := x.s[1].Stats()
		if to.kept == before || n.DropNoSA+n.DropESP > 0 {
			t.Errorf("%s: %d bytes arrived, %+v", what, to.kept-before, n)
		}
	}
	x.s[1].AddIn(&f, other)
	continues("with an SA of another address and this SPI")
	x.s[1].RemoveIn(&f, other)
	continues("after its deletion")
}

// TestClearFramesAreDropped: segments of an outsider without a key, which would end or open a connection, are dropped.
// A port that the policy leaves in the clear responds to clear segments, but not to protected ones.
func TestClearFramesAreDropped(t *testing.T) {
	from, to := &checked{t: t}, &checked{t: t}
	from.idle, to.idle = true, true
	x := newESPPair(t, false, esp.Shape{}, [2]Upper{from, to}, true, nil)
	x.policy[1].clear = map[uint16]bool{9: true}
	peer := x.e.tuple // as the outsider claims to be
	rst := wire.Header{Seq: x.e.conn.SndNxt(), Flags: wire.RST}
	syn := wire.Header{Seq: 1, Flags: wire.SYN}
	other := peer
	other.LocalPort++
	for name, f := range map[string][]byte{
		"RST in the window": clearFrame(1, peer, rst),
		"SYN":               clearFrame(1, other, syn),
	} {
		before, left := x.s[1].Stats(), len(x.seen)
		x.k[1].Inject(f)
		for range 4 {
			x.turn()
		}
		after := x.s[1].Stats()
		if after.DropPolicy != before.DropPolicy+1 || len(x.seen) != left {
			t.Errorf("%s: %d dropped, %d frames in answer", name,
				after.DropPolicy-before.DropPolicy, len(x.seen)-left)
		}
	}
	if x.s[1].Len() != 1 || x.e.conn.State() != tcp.Established {
		t.Errorf("%d connections, %v", x.s[1].Len(), x.e.conn.State())
	}
	// A port that the policy leaves in the clear responds in the clear, but not to a protected segment.
	clear := other
	clear.RemotePort = 9
	answered := 0
	x.lose = func(_ int, frame []byte) bool {
		if frame[ip.EthernetLen+9] == ip.ProtoTCP {
			answered++
			return true
		}
		return x.inspect(1, frame)
	}
	x.k[1].Inject(clearFrame(1, clear, syn))
	for range 4 {
		x.turn()
	}
	if answered != 1 {
		t.Errorf("%d answers of a port in the clear", answered)
	}
	x.k[1].Inject(x.sealed(0, clear, syn))
	before := x.s[1].Stats().DropPolicy
	for range 4 {
		x.turn()
	}
	if answered != 1 || x.s[1].Stats().DropPolicy != before+1 {
		t.Errorf("a protected SYN to a port in the clear: %d answers", answered-1)
	}
}

// clearFrame returns an unprotected TCP segment to a stack of a pair.
func clearFrame(to int, t tcp.Tuple, h wire.Header) []byte {
	f := frame(macs[1-to], t, h)
	copy(f, macs[to][:])
	return f
}

// sealed returns a segment as stack from would send it.
func (x *espPair) sealed(from int, t tcp.Tuple, h wire.Header) []byte {
	x.t.Helper()
	f := x.policy[from].flow
	b := make([]byte, 256)
	n := copy(b[f.headroom():], clearFrame(1-from, t, h))
	frame := template{n: ip.EthernetLen + ip.Len4, ipAt: ip.EthernetLen}
	size, err := f.seal(b, &frame, n, DefaultHopLimit)
	if err != nil {
		x.t.Fatal(err)
	}
	return b[:size]
}

// TestResetsAreProtected: a segment without a connection gets a RST, under the same protection.
func TestResetsAreProtected(t *testing.T) {
	from, to := &checked{t: t}, &checked{t: t}
	from.idle, to.idle = true, true
	x := newESPPair(t, false, esp.Shape{}, [2]Upper{from, to}, true, nil)
	stranger := x.e.tuple
	stranger.RemotePort = 99
	left := len(x.seen)
	x.k[1].Inject(x.sealed(0, stranger, wire.Header{Seq: 5, Flags: wire.SYN}))
	for range 4 {
		x.turn()
	}
	if n := x.s[1].Stats(); n.Resets != 1 || len(x.seen) != left+1 {
		t.Errorf("%d resets, %d frames", n.Resets, len(x.seen)-left)
	}
}

// TestSAIsForItsHosts: a host with an SA cannot send segments in the name of another host. A packet with an unknown SPI
// is dropped, too.
func TestSAIsForItsHosts(t *testing.T) {
	from, to := &checked{t: t}, &checked{t: t}
	from.idle, to.idle = true, true
	x := newESPPair(t, false, esp.Shape{}, [2]Upper{from, to}, true, nil)
	liar := x.e.tuple
	liar.Local = v4(192, 0, 2, 77)
	left := len(x.seen)
	x.k[1].Inject(x.sealed(0, liar, wire.Header{Seq: 5, Flags: wire.SYN}))
	unknown := x.sealed(0, x.e.tuple, wire.Header{Seq: 5, Flags: wire.ACK})
	unknown[ip.EthernetLen+ip.Len4] ^= 1
	x.k[1].Inject(unknown)
	for range 4 {
		x.turn()
	}
	if n := x.s[1].Stats(); n.DropNoSA != 2 || len(x.seen) != left {
		t.Errorf("%d dropped, %d frames in answer", n.DropNoSA, len(x.seen)-left)
	}
}

// TestProtectedJumbo: a frame of 9,000 bytes arrives in several chunks, and is decrypted as one.
func TestProtectedJumbo(t *testing.T) {
	for _, mode := range []esp.Mode{esp.Transport, esp.Tunnel} {
		from, to := &checked{t: t}, &checked{t: t}
		to.idle = true
		x := newESPPair(t, false, esp.Shape{Mode: mode}, [2]Upper{from, to}, true,
			func(_ int, c *Config) { c.MTU = 9000 })
		want := 8914
		if mode == esp.Tunnel {
			want = 8894
		}
		longest := 0
		x.lose = func(from int, frame []byte) bool {
			longest = max(longest, len(frame))
			return x.inspect(from, frame)
		}
		for range 200 {
			x.turn()
		}
		if x.e.EMSS() != want || longest < 9000 || to.kept < 1<<20 {
			t.Errorf("%v: EMSS %d, frames of up to %d bytes, %d arrived", mode, x.e.EMSS(),
				longest, to.kept)
		}
		for i := range x.s {
			if n := x.s[i].Stats(); n.DropESP+n.DropPolicy+n.DropNoSA+n.DropChecksum > 0 {
				t.Errorf("%v: %+v", mode, n)
			}
		}
	}
}

// TestProtectedFragments: a path fragments packets, despite DF. The whole packet is decrypted.
func TestProtectedFragments(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		from, to := &checked{t: t}, &checked{t: t}
		to.idle = true
		x := newESPPair(t, v6, esp.Shape{}, [2]Upper{from, to}, true, nil)
		id := uint32(0)
		x.lose = func(from int, frame []byte) bool {
			x.inspect(from, frame)
			id++
			for _, f := range fragments(t, frame, id) {
				x.k[1-from].Inject(f)
			}
			return true
		}
		for range 200 {
			x.turn()
		}
		n := x.s[1].Stats()
		if to.kept < 1<<18 || n.Reassembled == 0 || n.DropESP+n.DropPolicy+n.DropNoSA > 0 {
			t.Errorf("IPv6 %v: %d bytes arrived, %+v", v6, to.kept, n)
		}
	}
}

// fragments returns two frames, with the two fragments of the packet in frame.
func fragments(t *testing.T, frame []byte, id uint32) (list [][]byte) {
	t.Helper()
	const at = ip.EthernetLen
	var h ip.Header
	off, err := h.Decode(frame[at:])
	if err != nil {
		t.Fatal(err)
	}
	body := frame[at+off:]
	cutAt := len(body) / 2 &^ 7
	for i, part := range [][]byte{body[:cutAt], body[cutAt:]} {
		f := bytes.Clone(frame[:at+off])
		if h.V6 {
			f[at+6] = ip.ProtoFragment
			binary.BigEndian.PutUint16(f[at+4:], uint16(len(part)+8))
			ext := []byte{ip.ProtoESP, 0, 0, 0, 0, 0, 0, 0}
			binary.BigEndian.PutUint16(ext[2:], uint16(i*cutAt|1-i))
			binary.BigEndian.PutUint32(ext[4:], id)
			f = append(f, ext...)
		} else {
			binary.BigEndian.PutUint16(f[at+4:], uint16(id))
			binary.BigEndian.PutUint16(f[at+6:], uint16(i*cutAt/8|(1-i)<<13))
			setPayload(f[at:], ip.ProtoESP, len(part))
		}
		list = append(list, append(f, part...))
	}
	return list
}

// TestTunnelNextHeader: a packet is dropped unless ESP's next header field is that of the inner packet's IP version
// (RFC 4303, 2.6).
func TestTunnelNextHeader(t *testing.T) {
	for _, c := range shapes {
		if c.shape.Mode == esp.Transport {
			continue
		}
		from, to := &checked{t: t}, &checked{t: t}
		from.idle, to.idle = true, true
		x := newESPPair(t, c.v6, c.shape, [2]Upper{from, to}, true, nil)
		outerEnd := ip.EthernetLen + ipLen(c.shape.OuterV6)
		var sent []byte
		x.lose = func(i int, frame []byte) bool {
			if i == 0 {
				sent = bytes.Clone(frame)
				return true
			}
			return x.inspect(i, frame)
		}
		from.single, from.idle = 500, false
		x.e.Schedule()
		x.turn()
		b := sent[outerEnd:]
		inner, next, err := x.in[1].Open(bytes.Clone(b))
		if err != nil || next != nextHeader(c.v6) {
			t.Fatalf("%+v: next header %d, %v", c, next, err)
		}
		for _, next := range []uint8{esp.NextIPv4, esp.NextIPv6} {
			right := next == nextHeader(c.v6)
			copy(b[esp.HeaderLen:], inner)
			if _, err := x.policy[0].flow.out.Seal(b, len(inner), next); err != nil {
				t.Fatal(err)
			}
			before, kept := x.s[1].Stats().DropPolicy, to.kept
			x.k[1].Inject(bytes.Clone(sent))
			x.turn()
			if dropped := x.s[1].Stats().DropPolicy > before; dropped == right ||
				to.kept-kept != map[bool]int{true: 500}[right] {
				t.Errorf("%+v: next header %d: dropped %v, %d bytes received", c, next, dropped,
					to.kept-kept)
			}
		}
	}
}

// TestAuthenticGarbage: a peer with the keys sends data that is not a segment or not a packet. It is dropped.
func TestAuthenticGarbage(t *testing.T) {
	for _, c := range shapes {
		from, to := &checked{t: t}, &checked{t: t}
		from.idle, to.idle = true, true
		x := newESPPair(t, c.v6, c.shape, [2]Upper{from, to}, true, nil)
		var good []byte
		x.lose = func(i int, frame []byte) bool {
			if i == 0 {
				good = bytes.Clone(frame)
			}
			return x.inspect(i, frame)
		}
		from.single, from.idle = 500, false
		x.e.Schedule()
		for range 8 {
			x.turn()
		}
		var h ip.Header
		off, err := h.Decode(good[ip.EthernetLen:])
		if err != nil {
			t.Fatal(err)
		}
		off += ip.EthernetLen
		before := x.s[1].Stats()
		const times = 3000
		for range times {
			b := make([]byte, 1500)
			n := rand.IntN(200)
			copy(b, good[:off])
			for i := range n {
				b[off+esp.HeaderLen+i] = byte(rand.Uint32())
			}
			next := uint8(ip.ProtoTCP)
			if c.shape.Mode == esp.Tunnel {
				next = 4
				b[off+esp.HeaderLen] = 0x45 + byte(rand.IntN(2)*0x1b)
			}
			if rand.IntN(4) == 0 {
				next = byte(rand.Uint32())
			}
			size, err := x.policy[0].flow.out.Seal(b[off:], n, next)
			if err != nil {
				t.Fatal(err)
			}
			if b = b[:off+size]; h.V6 {
				binary.BigEndian.PutUint16(b[ip.EthernetLen+4:], uint16(size))
			} else {
				setPayload(b[ip.EthernetLen:off], ip.ProtoESP, size)
			}
			x.k[1].Inject(b)
			x.turn()
		}
		// Random bytes have a valid or a partial checksum once in 65536 times each.
		drops := func(n Stats) uint64 {
			return n.DropESP + n.DropPolicy + n.DropMalformed + n.DropChecksum + n.DropPartialSum +
				n.DropNoConnection
		}
		n := x.s[1].Stats()
		dropped := drops(n) - drops(before)
		if dropped != times || x.s[1].Len() != 1 {
			t.Errorf("%+v: %d dropped of %d: %+v", c, dropped, times, n)
		}
	}
}

// tooBig is the ICMP error of a router between the hosts about a frame.
func tooBig(t *testing.T, frame []byte, mtu int) []byte {
	t.Helper()
	var e ip.Ethernet
	var h ip.Header
	off, err := e.Decode(frame)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Decode(frame[off:]); err != nil {
		t.Fatal(err)
	}
	quoted := frame[off : off+h.Len()+8]
	body := make([]byte, 8, 8+len(quoted))
	reply := ip.Header{V6: h.V6, TTL: 64, Src: h.Dst, Dst: h.Src, Proto: ip.ProtoICMP}
	pseudo := uint64(0)
	if body[0], body[1] = 3, 4; h.V6 {
		body[0], body[1], reply.Proto = 2, 0, ip.ProtoICMPv6
		binary.BigEndian.PutUint32(body[4:], uint32(mtu))
	} else {
		binary.BigEndian.PutUint16(body[6:], uint16(mtu))
	}
	body = append(body, quoted...)
	if reply.PayloadLen = len(body); h.V6 {
		pseudo = reply.PseudoSum(len(body))
	}
	sum := wire.Finish(wire.Sum(body, pseudo))
	binary.BigEndian.PutUint16(body[2:], sum)
	b := make([]byte, off+reply.Len(), off+reply.Len()+len(body))
	e.Dst, e.Src = e.Src, e.Dst
	e.Put(b)
	reply.Put(b[off:])
	return append(b, body...)
}

// TestPacketTooBigAboutESP: a router reports its MTU, and the connection must not send longer packets. Errors about
// packets that were never sent change nothing.
func TestPacketTooBigAboutESP(t *testing.T) {
	for _, c := range shapes {
		from, to := &checked{t: t}, &checked{t: t}
		to.idle = true
		x := newESPPair(t, c.v6, c.shape, [2]Upper{from, to}, true, nil)
		var last []byte
		x.lose = func(i int, f []byte) bool {
			if i == 0 {
				last = bytes.Clone(f)
			}
			return x.inspect(i, f)
		}
		for range 20 {
			x.turn()
		}
		const mtu = 1400
		mtuOf := func() int { return x.e.conn.Info(x.now).PathMTU }
		was := mtuOf()
		quote := bytes.Clone(last)
		at := ip.EthernetLen + ipLen(last[12] == 0x86)
		for _, forge := range []func(b []byte){
			func(b []byte) { b[at+3] ^= 1 },                                  // another SPI
			func(b []byte) { binary.BigEndian.PutUint32(b[at+4:], 1<<30) },   // a future sequence number
			func(b []byte) { binary.BigEndian.PutUint32(b[at+4:], 1<<32-9) }, // not of this SA
		} {
			b := bytes.Clone(quote)
			forge(b)
			x.k[0].Inject(tooBig(t, b, mtu))
			x.turn()
		}
		x.k[0].Inject(tooBig(t, quote, 2000)) // more than we send
		x.turn()
		if mtuOf() != was {
			t.Errorf("%+v: forged errors lower the path MTU from %d to %d", c, was, mtuOf())
		}
		for _, mtu := range []int{mtu, 1280} { // inner packets are shorter than the minimum MTU of IPv6
			x.k[0].Inject(tooBig(t, last, mtu))
			for range 20 {
				x.turn()
			}
			if got, want := mtuOf(), c.shape.InnerMTU(mtu, c.v6); got != want {
				t.Errorf("%+v: path MTU %d, want %d", c, got, want)
			}
			if n := len(last) - ip.EthernetLen; n > mtu || n < mtu-4 {
				t.Errorf("%+v: packets of %d bytes for a router with MTU %d", c, n, mtu)
			}
		}
	}
}
