package tcp_test

import (
	"testing"

	"xwarp/tcp"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

func TestSYNRetransmission(t *testing.T) {
	p := newPeer(t, tcp.Config{SYNRetries: 3})
	p.c.Connect(p.now)
	p.want("S 0")
	for _, d := range []tick.Duration{tick.Second, 2 * tick.Second, 4 * tick.Second} {
		p.wait(d)
		p.want("S 0")
	}
	p.wait(8 * tick.Second)
	p.want()
	p.cause(tcp.CauseTimeout)
}

// TestSYNPatience: SYNs are retransmitted for at least three minutes (RFC 9293, MUST-23).
//
//req:rfc9293-MUST-23
func TestSYNPatience(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	begun, last := p.now, p.now
	p.c.Connect(p.now)
	for p.c.State() == tcp.SynSent {
		if len(p.out()) > 0 {
			last = p.now
		}
		p.now = p.c.Deadline()
		p.c.Expire(p.now)
	}
	p.cause(tcp.CauseTimeout)
	if d := last.Sub(begun); d < 3*tick.Minute || d > 4*tick.Minute {
		t.Errorf("the last SYN left after %d s, want 3 to 4 minutes", d/tick.Second)
	}
}

func TestRefused(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	p.c.Connect(p.now)
	p.want("S 0")
	p.in(fRA, 0, 1, 0)
	p.want()
	p.cause(tcp.CauseRefused)
}

// TestEMSS: EMSS is the smaller of the peer's MSS and that of the path, less the options that every segment carries.
//
//req:rfc9293-MUST-14 rfc9293-MUST-16
func TestEMSS(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  tcp.Config
		opts []opt
		want int
	}{
		{"none announced", tcp.Config{}, nil, 536},
		{"none announced, IPv6", tcp.Config{IPv6: true}, nil, 1220},
		{"Ethernet", tcp.Config{}, []opt{mss(1460)}, 1460},
		{"with timestamps", tcp.Config{}, []opt{mss(1460), ts(1, 0)}, 1448},
		{"IPv6 with timestamps", tcp.Config{IPv6: true}, []opt{mss(1440), ts(1, 0)}, 1428},
		{"jumbo here, not there", tcp.Config{MTU: 9000}, []opt{mss(1460)}, 1460},
		{"jumbo there, not here", tcp.Config{}, []opt{mss(8960)}, 1460},
		{"a path below both", tcp.Config{MTU: 9000, PathMTU: 4000}, []opt{mss(8960), ts(1, 0)},
			3948},
		{"an MSS of one", tcp.Config{}, []opt{mss(1)}, 48},
	} {
		p := newPeer(t, c.cfg)
		p.open(c.opts...)
		if got := p.c.EMSS(); got != c.want {
			t.Errorf("%s: EMSS %d, want %d", c.name, got, c.want)
		}
	}
}

// TestWindowNeverExceeded: bytes stay within the peer's window, unscaled in the SYN, scaled later.
//
//req:rfc9293-MUST-1 rfc9293-REC-1 rfc5681-3-1 rfc7323-2.2-1 rfc7323-2.2-4 rfc7323-2.3-4
func TestWindowNeverExceeded(t *testing.T) {
	p := newPeer(t, tcp.Config{RcvSpaceMax: 1 << 20})
	p.open(mss(1000), ws(2), win(2500))
	p.src.sizes = []int{1000, 1000, 1000, 1000, 1000}
	p.want(". 1+1000 ack 1", ". 1001+1000 ack 1")
	p.in(fA, 1, 2001, 0, win(750)) // 3000
	p.want(". 2001+1000 ack 1", ". 3001+1000 ack 1", "P. 4001+1000 ack 1")
}

// TestRecordsWait: a record that does not fit into the window waits, uncut.
//
//req:rfc9293-SHLD-28
func TestRecordsWait(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	p.open(mss(1000), win(2000))
	p.c.KeepBoundaries(true)
	p.src.sizes = []int{800, 800, 800, 800}
	p.want(". 1+800 ack 1", ". 801+800 ack 1")
	p.in(fA, 1, 1601, 0, win(500))
	p.want()
	p.pass(10 * tick.Second)
	for _, l := range p.out() {
		if l != ". 1600 ack 1" {
			t.Errorf("sent %q", l)
		}
	}
	p.in(fA, 1, 1601, 0, win(1600))
	p.want(". 1601+800 ack 1", "P. 2401+800 ack 1")
	if n := p.c.Counters(); n.SplitWindow+n.SplitEMSS+n.SplitRetransmit != 0 {
		t.Errorf("records were cut: %+v", n)
	}
}

// TestRecordsSmallForGood: the peer answers four window probes in a row with a window smaller than a record, although
// it was larger before. Its buffer has shrunk, so the record is sent in parts, and the cut is counted. An answer with a
// zero window restarts the count.
func TestRecordsSmallForGood(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	p.open(mss(1000), win(2000))
	p.c.KeepBoundaries(true)
	p.src.sizes = []int{800, 800, 800}
	p.want(". 1+800 ack 1", ". 801+800 ack 1")
	p.in(fA, 1, 1601, 0, win(500))
	for _, w := range []uint16{500, 500, 500, 0, 500, 500, 500, 500} {
		p.want()
		p.wait(p.c.Deadline().Sub(p.now))
		p.want(". 1600 ack 1")
		p.in(fA, 1, 1601, 0, win(w))
	}
	p.want(". 1601+500 ack 1")
	p.in(fA, 1, 2101, 0, win(500))
	p.want(". 2101+300 ack 1")
	if n := p.c.Counters().SplitWindow; n != 1 {
		t.Errorf("%d cuts counted, want 1", n)
	}
}

// TestDSACKOfAll: a DSACK is processed even if nothing is in flight any more (RFC 2883, 4).
func TestDSACKOfAll(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	p.open(mss(1000), sackOK())
	p.src.sizes = []int{500}
	p.want("P. 1+500 ack 1")
	p.pass(2 * tick.Second)
	p.out()
	p.in(fA, 1, 501, 0)
	p.in(fA, 1, 501, 0, func(s *tcp.Segment) {
		s.Opt.Present, s.Opt.NSACK = wire.HasSACK, 1
		s.Opt.SACK[0] = seq.Of(iss.Add(1), 500)
	})
	if n := p.c.Info(p.now).Loss.Counters.DSACKs; n != 1 {
		t.Errorf("%d DSACKs counted, want 1", n)
	}
}

// TestOldAckAccepted: our window shrank below the data that the peer has sent, so its acknowledgements have an old
// sequence number. They are processed only after a timeout, and only if they acknowledge new data. Their own data is
// ignored.
//
//req:rfc9293-MUST-34 rfc7323-2.4-1
func TestOldAckAccepted(t *testing.T) {
	const space = 65535 // the largest window without scaling: no valid segment begins further left
	p := newPeer(t, tcp.Config{})
	p.keep = true
	p.open(mss(1000), win(2000))
	p.src.sizes = []int{500}
	p.want("P. 1+500 ack 1")
	p.in(fA, 1, 1, 300)
	late := func(seq, ack, n, una int) {
		t.Helper()
		if o := p.in(fA, seq, ack, n, win(2000)); o.N != 0 {
			t.Errorf("an old segment's bytes were offered: %v", o.R[:o.N])
		}
		if got := p.c.SndUna().Diff(iss); got != una {
			t.Errorf("after seq %d ack %d: SND.UNA %d, want %d", seq, ack, got, una)
		}
	}
	late(1, 501, 0, 1) // RFC 9293, 3.10.7.4: no timeout, no exception
	p.pass(2 * tick.Second)
	p.out()
	late(1, 1, 0, 1)
	late(1, 502, 0, 1) // acknowledges a byte that was never sent
	late(301-space-1, 501, 0, 1)
	late(301-space, 501, 300, 501)
	p.out()
	if i := p.c.Info(p.now); i.Loss.Outstanding != 0 {
		t.Errorf("still outstanding: %+v", i.Loss)
	}
}

// hugeRecords is a Source that returns a record larger than room if room is EMSS.
type hugeRecords struct {
	queue
	emss int
}

func (h *hugeRecords) Next(room int) (int, bool) {
	if len(h.sizes) > 0 && h.sizes[0] > room && room >= h.emss {
		n := h.sizes[0]
		h.sizes = h.sizes[1:]
		return n, len(h.sizes) > 0
	}
	return h.queue.Next(room)
}

// TestTinyWindowPeer: a record larger than the peer's largest window is sent in parts, and the cuts are counted.
func TestTinyWindowPeer(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	p.open(mss(1000), win(300))
	p.c.KeepBoundaries(true)
	p.src.sizes = []int{700, 100}
	p.want(". 1+300 ack 1")
	p.in(fA, 1, 301, 0, win(300))
	p.want(". 301+300 ack 1")
	p.in(fA, 1, 601, 0, win(300))
	p.want(". 601+100 ack 1", "P. 701+100 ack 1")
	if n := p.c.Counters().SplitWindow; n != 2 {
		t.Errorf("%d cuts counted, want 2", n)
	}
}

// TestRecordAsLargeAsWindow: a record that fits into the peer's largest window waits until the window is as large
// again, and is not cut.
func TestRecordAsLargeAsWindow(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	p.open(mss(1000), win(300))
	p.c.KeepBoundaries(true)
	p.src.sizes = []int{300, 300}
	p.want(". 1+300 ack 1")
	p.in(fA, 1, 301, 0, win(200))
	p.want()
	p.in(fA, 1, 301, 0, win(300))
	p.want(". 301+300 ack 1")
}

// TestStreamTinyWindow: with nothing in flight, a byte stream fills a window of 500 bytes, which is less than a segment
// and than half of the largest window.
//
//req:rfc9293-MUST-38
func TestStreamTinyWindow(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	p.open(mss(1000), win(2000))
	p.src = queue{sizes: []int{10_000}, split: true}
	p.want(". 1+1000 ack 1", ". 1001+1000 ack 1")
	p.in(fA, 1, 2001, 0, win(500))
	p.out()
	p.in(fA, 1, p.c.SndNxt().Diff(iss), 0, win(500))
	if p.c.SndNxt().Diff(iss) < 2501 {
		t.Errorf("SND.NXT %d", p.c.SndNxt().Diff(iss))
	}
}

// TestEMSSFell: records frozen for a larger EMSS are sent and retransmitted in parts, and the cuts are counted.
func TestEMSSFell(t *testing.T) {
	p := newPeer(t, tcp.Config{MTU: 9000})
	p.open(mss(4000))
	p.c.KeepBoundaries(true)
	p.src.sizes = []int{4000}
	p.want("P. 1+4000 ack 1")
	h := &hugeRecords{emss: 1460}
	h.sizes = []int{4000}
	p.c.PathMTU(1500, p.now)
	if p.c.EMSS() != 1460 || p.c.Events()&tcp.EMSSChanged == 0 {
		t.Fatalf("EMSS %d", p.c.EMSS())
	}
	// The record in flight is marked lost, and is retransmitted in parts.
	var got []int
	var out tcp.Out
	for p.c.Poll(p.now, h, &out) {
		got = append(got, out.Payload.Len())
		if out.Payload.Len() > 1460 {
			t.Fatalf("%d bytes in a segment of 1460", out.Payload.Len())
		}
	}
	p.in(fA, 1, 4001, 0)
	for p.c.Poll(p.now, h, &out) {
		got = append(got, out.Payload.Len())
	}
	p.in(fA, 1, p.c.SndNxt().Diff(iss), 0)
	for p.c.Poll(p.now, h, &out) {
		got = append(got, out.Payload.Len())
	}
	sum := 0
	for _, n := range got {
		sum += n
	}
	n := p.c.Counters()
	if sum < 8000 || n.SplitRetransmit == 0 || n.SplitEMSS == 0 || p.c.SndNxt() != iss.Add(8001) {
		t.Errorf("segments %v, SND.NXT %d, cut %d when sent again and %d before", got,
			p.c.SndNxt().Diff(iss), n.SplitRetransmit, n.SplitEMSS)
	}
}

func TestUserTimeout(t *testing.T) {
	p := newPeer(t, tcp.Config{UserTimeout: 10 * tick.Second})
	p.open(mss(1000))
	p.src.sizes = []int{1000}
	start := p.now
	for p.c.State() == tcp.Established {
		p.out()
		p.now = p.c.Deadline()
		p.c.Expire(p.now)
	}
	if d := p.now.Sub(start); d < 10*tick.Second || d > 13*tick.Second {
		t.Errorf("ended after %d ms", d/tick.Millisecond)
	}
	p.cause(tcp.CauseTimeout)
	if l := p.out(); len(l) != 1 || l[0][:2] != "R." {
		t.Errorf("sent %q", l)
	}
}

// TestSYNThatCannotLeave: without a next hop or an IPsec SA, Poll is not called. The connection ends by the user
// timeout. If the SYN is sent at last, its retransmission follows without back-off.
func TestSYNThatCannotLeave(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		p := newPeer(t, tcp.Config{UserTimeout: 20 * tick.Second})
		p.c.Connect(p.now)
		start := p.now
		for p.c.State() == tcp.SynSent && p.now.Sub(start) < 15*tick.Second {
			p.now = p.c.Deadline()
			p.c.Expire(p.now)
		}
		if leaves {
			if l := p.out(); len(l) != 1 || l[0][:2] != "S " {
				t.Errorf("sent %q", l)
			}
			if d := p.c.Deadline().Sub(p.now); d != tick.Second {
				t.Errorf("the next SYN is due after %d ms", d/tick.Millisecond)
			}
			continue
		}
		for p.c.State() == tcp.SynSent {
			p.now = p.c.Deadline()
			p.c.Expire(p.now)
		}
		if d := p.now.Sub(start); d < 20*tick.Second || d > 22*tick.Second {
			t.Errorf("ended after %d ms", d/tick.Millisecond)
		}
		p.cause(tcp.CauseTimeout)
	}
}

//req:rfc9293-3.10.7.1-1 rfc7323-5.2-1
func TestResetReply(t *testing.T) {
	var out tcp.Out
	if tcp.ResetReply(&tcp.Segment{Header: wire.Header{Flags: fR}}, &out) ||
		tcp.ResetReply(&tcp.Segment{Header: wire.Header{Flags: fRA}}, &out) {
		t.Error("RST answered with RST")
	}
	s := &tcp.Segment{Header: wire.Header{SrcPort: 1, DstPort: 2, Seq: 100, Ack: 200, Flags: fA},
		Len: 10}
	if !tcp.ResetReply(s, &out) || out.Flags != fR || out.Seq != 200 || out.SrcPort != 2 ||
		out.DstPort != 1 {
		t.Errorf("ACK: %v", &out.Header)
	}
	s.Flags = fS | fF
	if !tcp.ResetReply(s, &out) || out.Flags != fRA || out.Seq != 0 || out.Ack != 112 {
		t.Errorf("SYN-FIN with 10 bytes: %v", &out.Header)
	}
	s.Opt.Present, s.Opt.TSVal, s.Opt.TSEcr = wire.HasTS, 5, 6
	if !tcp.ResetReply(s, &out) || out.Opt.Present != wire.HasTS || out.Opt.TSVal != 0 ||
		out.Opt.TSEcr != 5 {
		t.Errorf("with timestamps: %v", &out.Header)
	}
}

// TestMSSOnlyInSYN: no segment after the SYN has the options of a SYN (RFC 9293, MUST-65). All segments have
// timestamps, also a RST (RFC 7323, 3.2).
//
//req:rfc9293-MUST-65 rfc7323-3.2-5
func TestMSSOnlyInSYN(t *testing.T) {
	const once = wire.HasMSS | wire.HasWScale | wire.HasSACKPermitted
	p := newPeer(t, tcp.Config{})
	p.c.Connect(p.now)
	var o tcp.Out
	if !p.c.Poll(p.now, &p.src, &o) || !o.Opt.Present.Has(once|wire.HasTS) {
		t.Fatalf("SYN %v", &o.Header)
	}
	p.in(fSA, 0, 1, 0, mss(1000), sackOK(), ws(2), ts(1, o.Opt.TSVal))
	p.src.sizes = []int{900, 100}
	n := 0
	for range 2 {
		for p.c.Poll(p.now, &p.src, &o) {
			if n++; o.Opt.Present != wire.HasTS {
				t.Errorf("segment %d: %v", n, &o.Header)
			}
		}
		p.c.Abort(p.now)
	}
	if n < 3 || o.Flags&wire.RST == 0 {
		t.Errorf("%d segments, the last %v", n, &o.Header)
	}
}

// TestDuplicateAcks checks RFC 5681, 2 and 3.2: segments with data are not duplicate acknowledgements. Three without
// data cause the retransmission of the first segment.
func TestDuplicateAcks(t *testing.T) {
	p := newPeer(t, tcp.Config{QuickAcks: -1})
	p.open(mss(1000))
	p.src.sizes = []int{1000, 1000, 1000, 1000, 1000}
	p.want(". 1+1000 ack 1", ". 1001+1000 ack 1", ". 2001+1000 ack 1", ". 3001+1000 ack 1",
		"P. 4001+1000 ack 1")
	for i := range 6 {
		p.in(fA, 1+100*i, 1, 100)
	}
	if n := p.c.Counters().DupAcks; n != 0 {
		t.Errorf("%d duplicate acknowledgements with bytes", n)
	}
	for _, line := range p.out() {
		if line != ". 5001 ack 601" {
			t.Errorf("sent %q", line)
		}
	}
	for range 2 {
		p.in(fA, 601, 1, 0)
	}
	p.want()
	p.in(fA, 601, 1, 0)
	p.want("P. 1+1000 ack 601")
	if n := p.c.Counters().DupAcks; n != 3 {
		t.Errorf("%d duplicate acknowledgements of 3", n)
	}
}
