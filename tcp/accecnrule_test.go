package tcp_test

import (
	"testing"

	"xwarp/tcp"
	"xwarp/tcp/cc"
	"xwarp/tcp/loss"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

const allECN = wire.AE | wire.CWR | wire.ECE

// ace sets the ACE field, AE, CWR and ECE, to n.
func ace(n int) opt {
	return func(s *tcp.Segment) {
		for i, b := range []wire.Flags{wire.ECE, wire.CWR, wire.AE} {
			if n>>i&1 != 0 {
				s.Flags |= b
			}
		}
	}
}

// accECNOption adds an option with the first n counters. The second one, ce, is the CE counter.
func accECNOption(n uint8, ce uint32) opt {
	return func(s *tcp.Segment) {
		s.Opt.Present |= wire.HasAccECN0
		s.Opt.NAccECN, s.Opt.AccECN = n, [3]uint32{1, ce, 1}
	}
}

// accurate returns a connection with accurate feedback that has sent a number of segments of 1000 bytes.
func accurate(t *testing.T, segments int, opts ...opt) *peer {
	p := newPeer(t, tcp.Config{ECN: tcp.ECNAccurate, QuickAcks: -1,
		Loss: loss.Config{CC: cc.Config{InitialWindow: 64}}})
	p.c.Connect(p.now)
	p.out()
	p.in(fSA, 0, 1, 0, append(opts, mss(1000), flags(wire.CWR))...)
	p.send(segments)
	if got := p.c.SndNxt().Diff(iss); got != 1+1000*segments {
		t.Fatalf("SND.NXT %d after %d segments of 1000", got, segments)
	}
	return p
}

// send sends n segments of 1000 bytes.
func (p *peer) send(n int) {
	for range n {
		p.src.sizes = append(p.src.sizes, 1000)
	}
	p.out()
}

// TestAccECNWrap: the field counts modulo 8, so it may have wrapped when one acknowledgement covers more than 7
// packets. Then the largest count that matches the field and does not exceed the acknowledged packets is assumed (RFC
// 9768, 3.2.2.5.2 and A.2.1). If the field does not change at all, 0 is assumed.
//
//req:rfc9768-3.2.2-1 rfc9768-3.2.2.2-2 rfc9768-3.2.2.5.2-1 rfc9768-3.2.2.5.2-2 rfc9768-3.2.3.2.3-1
func TestAccECNWrap(t *testing.T) {
	for _, c := range []struct{ packets, moves, want int }{
		{1, 1, 1}, {7, 1, 1}, {7, 7, 7}, {8, 1, 1}, {8, 7, 7}, {9, 1, 9}, {9, 2, 2}, {10, 1, 9},
		{20, 2, 18}, {20, 4, 20}, {20, 5, 13}, {41, 1, 41}, {40, 1, 33}, {8, 0, 0}, {20, 0, 0},
		{1, 2, 1}, {3, 7, 3},
	} {
		p := accurate(t, c.packets)
		p.in(fA, 1, 1+1000*c.packets, 0, ace((5+c.moves)%8))
		if got := p.c.Counters().CEBytesOut; got != uint64(1000*c.want) {
			t.Errorf("the field moves by %d with %d packets: %d bytes marked, want %d", c.moves,
				c.packets, got, 1000*c.want)
		}
		p.send(1)
		p.in(fA, 1, 1001+1000*c.packets, 0, ace((5+c.moves)%8))
		if got := p.c.Counters().CEBytesOut; got != uint64(1000*c.want) {
			t.Errorf("%d packets, and the field does not move afterwards: %d bytes", c.packets,
				got)
		}
	}
}

// TestAccECNFeedback: which acknowledgements count as feedback about marks, and how the option changes the result (RFC
// 9768, 3.2.3 and appendix A).
//
//req:rfc9768-3.2.2.2-2 rfc9768-3.2.3-3 rfc9768-3.2.3.1-2 rfc9768-3.2.3.2.3-3 rfc9768-3.2.3.2.4-2
func TestAccECNFeedback(t *testing.T) {
	const sent = 10
	block := func(s *tcp.Segment) {
		s.Opt.Present |= wire.HasSACK
		s.Opt.NSACK, s.Opt.SACK[0].Start, s.Opt.SACK[0].End = 1, iss.Add(8001), iss.Add(9001)
	}
	many := flags(wire.PSH) // PSH has no influence
	for _, c := range []struct {
		name string
		ack  int
		opts []opt
		want uint64
	}{
		{"acknowledges nothing", 4001, []opt{ace(6)}, 0},
		{"an old one", 4000, []opt{ace(6)}, 0},
		{"one byte", 4002, []opt{ace(6)}, 1000},
		{"only by a block", 4001, []opt{ace(6), block}, 1000},
		{"old, with a block", 4000, []opt{ace(6), block}, 0},
		{"option without CE", 5001, []opt{ace(6), accECNOption(1, 500)}, 1000},
		{"option", 5001, []opt{ace(6), accECNOption(2, 500)}, 500},
		{"option, and nothing new", 4001, []opt{ace(6), accECNOption(3, 500)}, 500},
		{"option, many packets", 10001, []opt{ace(7), accECNOption(3, 1500)}, 1500},
		{"the most that is news", 5001, []opt{ace(6), accECNOption(3, 1<<23-1)}, 1<<23 - 1},
		{"an older option", 5001, []opt{ace(6), accECNOption(3, 1<<23)}, 0},
		{"the other order", 5001, []opt{ace(6), accECNOption(3, 500), func(s *tcp.Segment) {
			s.Opt.Present ^= wire.HasAccECN0 | wire.HasAccECN1
		}}, 500},
	} {
		p := accurate(t, sent, sackOK())
		p.in(fA, 1, 4001, 0, ace(5))
		p.in(fA, 1, c.ack, 0, append(c.opts, many)...)
		if got := p.c.Counters().CEBytesOut; got != c.want {
			t.Errorf("%s: %d bytes marked, want %d", c.name, got, c.want)
		}
	}
	// The first option after reports by the field alone does not count their bytes again. Later options count in full.
	p := accurate(t, sent)
	p.in(fA, 1, 3001, 0, ace(7)) // 2000, of 2 packets
	for i, want := range []uint64{2000, 2300, 2800} {
		p.in(fA, 1, 4001+1000*i, 0, ace(7), accECNOption(3, uint32([]int{1900, 2200, 2700}[i])))
		if got := p.c.Counters().CEBytesOut; got != want {
			t.Errorf("option %d: %d bytes marked, want %d", i, got, want)
		}
	}
}

// TestAccECNHandshakeEnd: the first ACK to a Listener's connection echoes the ECN bits of the SYN-ACK (RFC 9768, table
// 4 and 3.2.2.3). If it is a pure ACK and its ACE field is 0, or the code of ECT or CE, which the SYN-ACK did not have,
// data is sent without ECT. In a first ACK with data, the ACE field is a counter instead.
//
//req:rfc9768-3.2.2.1-4 rfc9768-3.2.2.1-5 rfc9768-3.2.2.2-6 rfc9768-3.2.2.4-3
func TestAccECNHandshakeEnd(t *testing.T) {
	for _, c := range []struct {
		ace, sizes int
		noECT      bool
		next       int    // the ACE field of the next acknowledgement
		marked     uint64 // bytes that it reports as marked
		reductions uint64
	}{
		{0, 0, true, 7, 0, 0}, {1, 0, false, 5, 0, 0}, {2, 0, false, 6, 1000, 1},
		{3, 0, true, 5, 0, 0}, {4, 0, true, 5, 0, 0}, {5, 0, false, 6, 1000, 1},
		{6, 0, true, 6, 0, 1}, {6, 0, true, 7, 1000, 1}, {7, 0, false, 5, 0, 0},
		{6, 100, false, 6, 1000, 1}, {0, 100, false, 5, 0, 0},
	} {
		l, now := newListener(tcp.ListenConfig{Conn: tcp.Config{ECN: tcp.ECNPassive,
			NoTimestamps: true}})
		tu := tuple(4000)
		var out tcp.Out
		l.Input(&tu, segment(fS|allECN, 1000, 0, mss(1000)), now, &out)
		if aceOf(out.Flags) != 2 || !out.Opt.Present.Has(wire.HasAccECN0) {
			t.Fatalf("SYN-ACK %v, want ACE 2 and the option", &out.Header)
		}
		ack := segment(fA, 1001, out.Seq+1, ace(c.ace))
		ack.Len, ack.Window = c.sizes, 10_000
		var conn tcp.Conn
		if l.Input(&tu, ack, now, &out) != tcp.Ready || !l.Accept(&tu, ack, &conn, now) {
			t.Fatal("not accepted")
		}
		conn.Input(ack, now)
		conn.Finish(now)
		if got := conn.Info(now).NoECT; got != c.noECT {
			t.Errorf("ACE %d: no ECT %v, want %v", c.ace, got, c.noECT)
		}
		src, want := queue{sizes: []int{1000, 1000}}, tcp.ECT0
		if c.noECT {
			want = tcp.NotECT
		}
		for conn.Poll(now, &src, &out) {
			if n := out.Payload.Len(); n > 0 && out.ECN != want {
				t.Errorf("ACE %d: bytes with IP bits %d, want %d", c.ace, out.ECN, want)
			}
		}
		for _, sizes := range []int{0, 1000} { // only the one that acknowledges data counts
			if n := conn.LossCounters().ECNReductions; n != 0 {
				t.Errorf("ACE %d: %d reductions before anything was acknowledged", c.ace, n)
			}
			s := segment(fA, conn.RcvNxt(), conn.SndUna().Add(sizes), ace(c.next))
			s.Window = 10_000
			conn.Input(s, now)
			conn.Finish(now)
		}
		if got := conn.Counters().CEBytesOut; got != c.marked {
			t.Errorf("ACE %d, then %d: %d bytes marked, want %d", c.ace, c.next, got, c.marked)
		}
		if got := conn.LossCounters().ECNReductions; got != c.reductions {
			t.Errorf("ACE %d, then %d: %d reductions, want %d", c.ace, c.next, got, c.reductions)
		}
	}
}

// TestAccECNMarkedSYN: a SYN that arrived with CE counts as a mark, once (RFC 9768, 3.2.2.4). The option in the peer's
// SYN-ACK is no feedback about bytes.
//
//req:rfc9768-3.2.2-3 rfc9768-3.2.2.2-4 rfc9768-3.2.2.2-5
func TestAccECNMarkedSYN(t *testing.T) {
	p := newPeer(t, tcp.Config{ECN: tcp.ECNAccurate})
	p.c.Connect(p.now)
	p.out()
	p.in(fSA, 0, 1, 0, mss(1000), ace(6))
	for i, want := range []uint64{0, 1, 1} {
		p.in(fA, 1, 1+1000*i, 0, ace(5))
		p.send(1)
		if got := p.c.LossCounters().ECNReductions; got != want {
			t.Errorf("after %d segments: %d reductions, want %d", i, got, want)
		}
	}
	if !p.c.Info(p.now).NoECT {
		t.Error("the path sets CE, and ECT is sent all the same")
	}
	p = newPeer(t, tcp.Config{ECN: tcp.ECNAccurate})
	p.c.Connect(p.now)
	p.out()
	for range 3 { // a repeated SYN-ACK counts once (RFC 9768, 3.2.2.2)
		p.in(fSA, 0, 1, 0, mss(1000), ace(2), ecnIP(tcp.CE))
		if f, _ := flagsOf(p); len(f) != 1 || aceOf(f[0]) != 6 {
			t.Errorf("the answer to a SYN-ACK with CE: %v, want ACE 6", f)
		}
		p.now = p.now.Add(tick.Second)
	}
	p.src.sizes = []int{1000}
	if f, _ := flagsOf(p); len(f) != 1 || aceOf(f[0]) != 6 {
		t.Errorf("bytes after it: %v, want ACE 6", f)
	}
	p = newPeer(t, tcp.Config{ECN: tcp.ECNAccurate}) // the SYNs cross
	p.c.Connect(p.now)
	p.out()
	p.in(fS, 0, 0, 0, mss(1000), flags(allECN))
	p.out()
	p.in(fSA, 0, 1, 0, mss(1000), ace(2), accECNOption(3, 0))
	p.state(tcp.Established)
	p.send(1)
	p.in(fA, 1, 1001, 0, ace(6))
	if got := p.c.Counters().CEBytesOut; got != 1000 {
		t.Errorf("after SYNs that crossed, one marked packet is %d bytes, want 1000", got)
	}
}

// TestAccECNAtOnce: the first segment with a mark, the first one without, and every second mark are acknowledged at
// once (RFC 9768, 3.2.2.5.1).
//
//req:rfc9768-3.2.2.5.1-1 rfc9768-3.2.2.5.1-2
func TestAccECNAtOnce(t *testing.T) {
	p := accurate(t, 0)
	for i, c := range []struct {
		e    tcp.ECN
		want int
	}{{tcp.ECT0, 0}, {tcp.CE, 1}, {tcp.CE, 0}, {tcp.CE, 1}, {tcp.CE, 0}, {tcp.CE, 1},
		{tcp.ECT0, 1}, {tcp.ECT0, 0}, {tcp.NotECT, 0}} {
		p.in(fA, 1+10*i, 1, 10, ecnIP(c.e), ace(5))
		if got := len(p.out()); got != c.want {
			t.Errorf("segment %d, IP bits %d: %d acknowledgements, want %d", i, c.e, got, c.want)
		}
	}
}

// TestAccECNBatch: in a batch of segments, each change between marked and unmarked, and each second mark, causes an
// acknowledgement of its own: "both the above rules SHOULD be interpreted as requiring multiple ACKs to be emitted
// back-to-back" (RFC 9768, 3.2.2.5.1).
//
//req:rfc9768-3.2.2.5.1-4
func TestAccECNBatch(t *testing.T) {
	p := accurate(t, 0)
	for i, e := range []tcp.ECN{tcp.ECT0, tcp.CE, tcp.CE, tcp.CE, tcp.ECT0, tcp.ECT0} {
		p.in(fA, 1+10*i, 1, 10, ecnIP(e), ace(5))
	}
	if got := p.out(); len(got) != 3 {
		t.Errorf("%q, want an acknowledgement of the first mark, of the next two, and of their end", got)
	}
}
