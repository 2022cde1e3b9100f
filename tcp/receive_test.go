package tcp_test

import (
	"testing"

	"xwarp/tcp"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// noQuick delays acknowledgements from the start.
var noQuick = tcp.Config{QuickAcks: -1}

func TestDelayedAck(t *testing.T) {
	p := newPeer(t, noQuick)
	p.open(mss(1000))
	p.in(fA, 1, 1, 1000)
	p.want()
	p.wait(40 * tick.Millisecond)
	p.want(". 1 ack 1001")
	p.in(fA, 1001, 1, 1000) // every second full-sized segment is acknowledged at once
	p.in(fA, 2001, 1, 1000)
	p.want(". 1 ack 3001")
	p.in(fA, 3001, 1, 1000)
	p.src.sizes = []int{10} // data carries the acknowledgement
	p.want("P. 1+10 ack 4001")
	p.pass(tick.Second / 10)
	p.want()
}

// TestAcksInBatch: after a batch of segments, there is still one acknowledgement for two segments, or for StretchAck.
//
//req:rfc9293-MUST-58 rfc9293-MUST-59 rfc5681-4.2-6
func TestAcksInBatch(t *testing.T) {
	for _, c := range []struct {
		stretch int
		want    []string
	}{
		{0, []string{". 1 ack 2001", ". 1 ack 4001", ". 1 ack 6001", ". 1 ack 8001"}},
		{4, []string{". 1 ack 4001", ". 1 ack 8001"}},
		{64, []string{". 1 ack 8001"}},
	} {
		p := newPeer(t, tcp.Config{QuickAcks: -1, StretchAck: c.stretch})
		p.open(mss(1000))
		for i := range 8 {
			p.in(fA, 1+1000*i, 1, 1000)
		}
		p.want(c.want...)
	}
}

// TestSACKInBatch: acknowledgements that were queued before a hole appeared or was filled must not have SACK blocks
// beyond it: the peer would regard the bytes between as lost.
//
//req:rfc9293-MUST-59
func TestSACKInBatch(t *testing.T) {
	p := newPeer(t, noQuick)
	p.open(mss(1000), sackOK())
	for _, at := range []int{1, 1001, 2001, 3001, 5001} {
		p.in(fA, at, 1, 1000)
	}
	p.want(". 1 ack 2001", ". 1 ack 4001 5001:6001", ". 1 ack 4001 5001:6001")
	for _, at := range []int{6001, 4001, 8001} {
		p.in(fA, at, 1, 1000)
	}
	p.want(". 1 ack 4001", ". 1 ack 7001 8001:9001", ". 1 ack 7001 8001:9001")
}

// TestAckNeverGoesBack: acknowledgements for a duplicate and for a filled hole are queued when data is sent, which
// acknowledges all bytes. Later segments must not acknowledge less.
func TestAckNeverGoesBack(t *testing.T) {
	p := newPeer(t, noQuick)
	p.open(mss(1000), sackOK())
	p.in(fA, 1, 1, 100)
	p.in(fA, 1, 1, 100)
	p.in(fA, 201, 1, 100)
	p.in(fA, 101, 1, 100)
	p.src.sizes = []int{10}
	p.want("P. 1+10 ack 301", ". 11 ack 301 1:101")
}

func TestQuickAcks(t *testing.T) {
	p := newPeer(t, tcp.Config{QuickAcks: 2})
	p.open(mss(1000))
	p.in(fA, 1, 1, 100)
	p.want(". 1 ack 101")
	p.in(fA, 101, 1, 100)
	p.want(". 1 ack 201")
	p.in(fA, 201, 1, 100)
	p.want()
	p.c.AckNow()
	p.want(". 1 ack 301")
}

// TestSACKOrder checks RFC 2018, 4: the first block contains the newest segment, the others follow, newest first.
func TestSACKOrder(t *testing.T) {
	p := newPeer(t, noQuick)
	p.open(mss(1000), sackOK())
	p.in(fA, 201, 1, 100)
	p.want(". 1 ack 1 201:301")
	p.in(fA, 601, 1, 100)
	p.want(". 1 ack 1 601:701 201:301")
	p.in(fA, 401, 1, 100)
	p.want(". 1 ack 1 401:501 601:701 201:301")
	p.in(fA, 801, 1, 100)
	p.want(". 1 ack 1 801:901 401:501 601:701 201:301")
	p.in(fA, 1001, 1, 100) // five ranges: the oldest gets no block
	p.want(". 1 ack 1 1001:1101 801:901 401:501 601:701")
	p.in(fA, 301, 1, 100) // joins two ranges
	p.want(". 1 ack 1 201:501 1001:1101 801:901 601:701")
	p.in(fA, 1, 1, 200) // fills the first hole
	p.want(". 1 ack 501 1001:1101 801:901 601:701")
	p.in(fA, 501, 1, 700)
	p.want(". 1 ack 1201 601:701") // covers everything; the first duplicate bytes are reported (RFC 2883)
}

// TestSACKThreeWithTimestamps: with timestamps, three blocks fit.
func TestSACKThreeWithTimestamps(t *testing.T) {
	p := newPeer(t, noQuick)
	p.open(mss(1000), sackOK(), ts(1, 0))
	for i := range 4 {
		p.in(fA, 201+200*i, 1, 100, ts(1, 0))
	}
	lines := p.out()
	if got := lines[len(lines)-1]; got != ". 1 ack 1 801:901 601:701 401:501" {
		t.Errorf("last acknowledgement %q", got)
	}
}

// TestDSACK: the examples of RFC 2883, section 4, except 4.2.2, with their segments of 500 bytes.
//
//req:rfc9768-3.1.1-8
func TestDSACK(t *testing.T) {
	// 4.1.1: an acknowledged segment arrives again.
	p := newPeer(t, noQuick)
	p.open(mss(1000), sackOK())
	p.in(fA, 1, 1, 500)
	p.in(fA, 501, 1, 500)
	p.out()
	p.in(fA, 1, 1, 500)
	p.want(". 1 ack 1001 1:501")
	// 4.1.2: a segment out of order, and then a duplicate below the hole.
	p.in(fA, 1501, 1, 500)
	p.in(fA, 1, 1, 500)
	p.want(". 1 ack 1001 1501:2001", ". 1 ack 1001 1:501 1501:2001")
	// 4.1.3: a duplicate beyond the hole: the block that contains it follows.
	p.in(fA, 2501, 1, 500)
	p.in(fA, 2001, 1, 500)
	p.out()
	p.in(fA, 2001, 1, 500)
	p.want(". 1 ack 1001 2001:2501 1501:3001")
	// 4.2.1: a segment that is partly a duplicate below RCV.NXT.
	p.in(fA, 501, 1, 700)
	p.want(". 1 ack 1201 501:1001 1501:3001")
	// 4.2.3: a segment that is partly a duplicate beyond the hole.
	p.in(fA, 1401, 1, 200)
	p.want(". 1 ack 1201 1501:1601 1401:3001")
}

// TestDSACKOfMany: acknowledgements that exceed the queue are merged into its last one, which reports the last
// duplicate. A later one without duplicate does not remove the report.
func TestDSACKOfMany(t *testing.T) {
	p := newPeer(t, noQuick)
	p.open(mss(1000), sackOK())
	for i := range 64 {
		p.in(fA, 1+100*i, 1, 100)
	}
	p.out()
	for i := range 40 {
		p.in(fA, 1+100*i, 1, 100)
	}
	p.in(fA, 6501, 1, 100)
	lines := p.out()
	if got, want := lines[len(lines)-1], ". 1 ack 6401 3901:4001 6501:6601"; got != want {
		t.Errorf("last of %d acknowledgements %q, want %q", len(lines), got, want)
	}
}

// TestNoSACK: without SACK, each segment beyond a hole causes a duplicate acknowledgement.
func TestNoSACK(t *testing.T) {
	p := newPeer(t, noQuick)
	p.open(mss(1000))
	for i := range 3 {
		p.in(fA, 1001+1000*i, 1, 1000)
	}
	p.want(". 1 ack 1", ". 1 ack 1", ". 1 ack 1")
}

// TestSACKNotOnFullSegments: if SACK blocks do not fit beside a record, a pure ACK carries them.
func TestSACKNotOnFullSegments(t *testing.T) {
	p := newPeer(t, noQuick)
	p.open(mss(1000), sackOK())
	p.in(fA, 101, 1, 100)
	p.src.sizes = []int{1000, 100}
	p.want(". 1+1000 ack 1", "P. 1001+100 ack 1 101:201")
	p.in(fA, 301, 1, 100)
	p.src.sizes = []int{1000}
	p.want("P. 1101+1000 ack 1", ". 2101 ack 1 301:401 101:201")
}

// TestNeverKept: bytes that the layer above does not keep count as never received: they are not acknowledged, and are
// offered again. Later bytes are out of order: "A TCP receiver SHOULD send an immediate duplicate ACK when an
// out-of-order segment arrives" (RFC 5681, 4.2).
//
//req:rfc9293-MAY-13 rfc5681-3.2-1 rfc5681-4.2-4
func TestNeverKept(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	p.open(mss(1000), sackOK())
	p.keep = false
	if o := p.in(fA, 1, 1, 100); o.N != 1 {
		t.Fatalf("offer %+v", o)
	}
	p.want()
	p.in(fA, 201, 1, 100)
	p.want(". 1 ack 1")
	p.keep = true
	if o := p.in(fA, 1, 1, 100); o.N != 1 || o.R[0].Len() != 100 {
		t.Fatalf("second offer %+v", o)
	}
	p.want(". 1 ack 101")
	// A kept prefix.
	s := tcp.Segment{Len: 100}
	s.Flags, s.Seq, s.Ack, s.Window = fA, irs.Add(101), iss.Add(1), 0xffff
	o := p.c.Input(&s, p.now)
	p.c.Keep(seq.Of(o.R[0].Start, 30))
	p.c.Finish(p.now)
	p.want(". 1 ack 131")
}

// TestHeldBytes: each byte held beyond a hole counts once, however its ranges are joined.
//
//req:rfc9293-SHLD-31
func TestHeldBytes(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	p.open(mss(1000), sackOK())
	p.keep = true
	high := 0
	for i, c := range []struct{ at, n, sizes, holes int }{
		{1001, 1000, 1000, 1},
		{3001, 1000, 2000, 2},
		{5001, 500, 2500, 3},
		{2001, 1000, 3500, 2}, // adjacent to a range on each side
		{3501, 1000, 4000, 2}, // overlaps the end of a range
		{5501, 500, 4500, 2},  // adjacent to the end of a range
		{801, 200, 4700, 2},   // adjacent to the start of a range
		{1001, 1000, 4700, 2}, // a duplicate
		{4401, 700, 5200, 1},  // overlaps two ranges
		{1, 800, 0, 0},
	} {
		p.in(fA, c.at, 1, c.n)
		high = max(high, c.sizes)
		n := p.c.Info(p.now)
		if n.HeldBytes != c.sizes || n.Holes != c.holes || n.HeldHigh != high {
			t.Errorf("segment %d: %d bytes in %d ranges, %d at most; want %d in %d, %d", i,
				n.HeldBytes, n.Holes, n.HeldHigh, c.sizes, c.holes, high)
		}
	}
}

// TestOfferOnlyNew: each byte is offered only once, whatever the segment boundaries. The ranges lie in the window, in
// ascending order.
//
//req:rfc9293-3.10.7.4-6
func TestOfferOnlyNew(t *testing.T) {
	p := newPeer(t, tcp.Config{RcvSpace: 1000})
	p.open(mss(1000), sackOK())
	rel := func(o tcp.Offer) (r [][2]int) {
		for _, x := range o.R[:o.N] {
			r = append(r, [2]int{x.Start.Diff(irs), x.End.Diff(irs)})
		}
		return r
	}
	check := func(o tcp.Offer, want ...[2]int) {
		t.Helper()
		got := rel(o)
		if len(got) != len(want) {
			t.Fatalf("offer %v, want %v", got, want)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("offer %v, want %v", got, want)
			}
		}
	}
	check(p.in(fA, 101, 1, 100), [2]int{101, 201})
	check(p.in(fA, 301, 1, 100), [2]int{301, 401})
	check(p.in(fA, 51, 1, 400), [2]int{51, 101}, [2]int{201, 301}, [2]int{401, 451})
	check(p.in(fA, 101, 1, 300))
	check(p.in(fA, 901, 1, 500), [2]int{901, 1001}) // trimmed to the window
	check(p.in(fA, 1, 1, 2000), [2]int{1, 51}, [2]int{451, 901})
	check(p.in(fA, 1, 1, 2000))
}

// TestManyGapsInOneSegment: if a segment fills more gaps than an Offer has ranges, a retransmission fills the rest.
func TestManyGapsInOneSegment(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	p.open(mss(1000), sackOK())
	for i := range 10 {
		p.in(fA, 101+200*i, 1, 100)
	}
	if o := p.in(fA, 1, 1, 2100); o.N != tcp.MaxOffer {
		t.Fatalf("%d ranges", o.N)
	}
	for i := 0; p.c.RcvNxt() != irs.Add(2101); i++ {
		if p.in(fA, 1, 1, 2100); i > 3 {
			t.Fatalf("RCV.NXT is stuck at %d", p.c.RcvNxt().Diff(irs))
		}
	}
}

// TestHolesLimit: with MaxHoles ranges a further one is refused, but not bytes adjacent to a range or at RCV.NXT.
func TestHolesLimit(t *testing.T) {
	p := newPeer(t, tcp.Config{MaxHoles: 4})
	p.open(mss(1000), sackOK())
	for i := range 4 {
		p.in(fA, 101+200*i, 1, 100)
	}
	if o := p.in(fA, 2001, 1, 100); o.N != 0 {
		t.Errorf("a fifth piece is offered: %+v", o)
	}
	if o := p.in(fA, 801, 1, 50); o.N != 1 {
		t.Error("bytes adjacent to a piece are refused")
	}
	if o := p.in(fA, 1, 1, 50); o.N != 1 {
		t.Error("bytes at RCV.NXT are refused")
	}
	if n := p.c.Counters().HolesRefused; n != 1 {
		t.Errorf("%d refused", n)
	}
}

//req:rfc9293-SHLD-14 rfc7323-2.4-2 rfc7323-2.4-3
func TestWindowEdge(t *testing.T) {
	p := newPeer(t, tcp.Config{RcvSpace: 3000, RcvSpaceMax: 1 << 20, QuickAcks: -1})
	p.c.Connect(p.now)
	p.out()
	p.in(fSA, 0, 1, 0, mss(1000), ws(3))
	right := irs.Add(1)
	last := func() (ack seq.Num, edge seq.Num) {
		t.Helper()
		var o tcp.Out
		n := 0
		for p.c.Poll(p.now, nil, &o) {
			n++
			e := o.Ack.Add(int(o.Window) << p.c.Info(p.now).RcvWScale)
			if e.Less(right) {
				t.Fatalf("right edge moves left: %d to %d", right.Diff(irs), e.Diff(irs))
			}
			right = e
			ack, edge = o.Ack, e
		}
		if n == 0 {
			t.Fatal("nothing sent")
		}
		return ack, edge
	}
	if s := p.c.Info(p.now).RcvWScale; s != 5 {
		t.Fatalf("window scale %d for 1 MiB, want 5", s)
	}
	last()
	// The reader reads nothing: the window closes. Its right edge stays, rounded up to a unit of the window scale.
	at := 1
	for _, n := range []int{999, 1000, 601, 399} {
		p.in(fA, at, 1, n)
		at += n
		p.c.AckNow()
		last()
	}
	if w := p.c.Info(p.now).RcvWnd; w > 4*32 { // rounding up may give a unit for each acknowledgement
		t.Errorf("%d bytes of window are left", w)
	}
	// A small advance is not announced. That of a segment is announced at once.
	p.c.SetRcvSpace(100, p.now)
	p.want()
	p.c.SetRcvSpace(2000, p.now)
	if _, e := last(); e.Diff(p.c.RcvNxt()) < 1900 {
		t.Errorf("window %d after the reader made room for 2000", e.Diff(p.c.RcvNxt()))
	}
	// Less room than announced does not move the edge.
	p.c.SetRcvSpace(10, p.now)
	p.in(fA, at, 1, 1)
	p.c.AckNow()
	last()
}

// TestSmallSpace: the space of the layer above is always less than half of RcvSpaceMax, and less than a segment. A
// window that it closed opens again all the same.
func TestSmallSpace(t *testing.T) {
	p := newPeer(t, tcp.Config{QuickAcks: -1, MTU: 9000, RcvSpace: 16384, RcvSpaceMax: 16384})
	p.open(mss(8960))
	p.c.SetRcvSpace(4000, p.now)
	p.in(fA, 1, 1, 8000)
	p.in(fA, 8001, 1, 8000)
	p.c.SetRcvSpace(0, p.now)
	p.out()
	p.in(fA, 16001, 1, 384)
	p.out()
	p.c.SetRcvSpace(4000, p.now)
	p.want(". 1 ack 16385")
}

// TestBeyondWindow: bytes beyond the right edge of the window are trimmed, and the segment is answered.
func TestBeyondWindow(t *testing.T) {
	p := newPeer(t, tcp.Config{RcvSpace: 1000, QuickAcks: -1})
	p.open(mss(1000))
	if o := p.in(fA, 1, 1, 1500); o.N != 1 || o.R[0].Len() != 1000 {
		t.Fatalf("offer %+v", o)
	}
	p.want(". 1 ack 1001")
	// A window probe with a byte of data: the byte is refused, the ACK is processed, and the probe is answered.
	p.src.sizes = []int{100}
	p.want("P. 1+100 ack 1001")
	if o := p.in(fA, 1001, 101, 1); o.N != 0 {
		t.Fatalf("offer %+v at window 0", o)
	}
	p.want(". 101 ack 1001")
	if p.c.SndUna() != iss.Add(101) {
		t.Error("the ACK of a zero-window probe is not processed")
	}
	// Probes left of the window, without data and with a byte of old data.
	p.in(fA, 1000, 101, 0)
	p.want(". 101 ack 1001")
	p.pass(tick.Second)
	p.in(fA, 1000, 101, 1)
	p.want(". 101 ack 1001")
}

//req:rfc9293-MUST-30 rfc9293-MUST-31 rfc9293-MUST-32
func TestUrgent(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	p.open(mss(1000))
	o := p.in(fA|wire.URG, 1, 1, 10, func(s *tcp.Segment) { s.Urgent = 5 })
	if o.N != 1 || o.R[0].Len() != 10 {
		t.Errorf("urgent bytes do not stay in the stream: %+v", o)
	}
	if p.c.Events()&tcp.Urgent == 0 {
		t.Error("no Urgent event")
	}
}

//req:rfc7323-4.1-1
func TestTimestamps(t *testing.T) {
	p := newPeer(t, tcp.Config{QuickAcks: -1, TSOffset: 5})
	p.open(mss(1000), ts(100, 0))
	ecr := func() uint32 {
		t.Helper()
		var o tcp.Out
		p.c.AckNow()
		if !p.c.Poll(p.now, nil, &o) || !o.Opt.Present.Has(wire.HasTS) ||
			o.Opt.TSVal != uint32(p.now/1e6)+5 {
			t.Fatalf("no timestamp of 1 ms clock: %v", &o.Header)
		}
		return o.Opt.TSEcr
	}
	// RFC 7323, 4.3: with delayed acknowledgements, the timestamp of the earliest unacknowledged segment is echoed.
	p.in(fA, 1, 1, 100, ts(101, 0))
	p.in(fA, 101, 1, 100, ts(102, 0))
	if e := ecr(); e != 101 {
		t.Errorf("echo %d, want 101", e)
	}
	// For a segment beyond a hole, that of the last segment before the hole; then that of the segment that fills it.
	p.in(fA, 301, 1, 100, ts(103, 0))
	var o tcp.Out
	p.c.Poll(p.now, nil, &o)
	if o.Opt.TSEcr != 102 && o.Opt.TSEcr != 101 {
		t.Errorf("echo %d beyond a gap", o.Opt.TSEcr)
	}
	p.in(fA, 201, 1, 100, ts(104, 0))
	p.c.Poll(p.now, nil, &o)
	if o.Opt.TSEcr != 104 {
		t.Errorf("echo %d after the gap closed, want 104", o.Opt.TSEcr)
	}
	// PAWS: a segment with an older timestamp is dropped and answered. A RST is exempt.
	if of := p.in(fA, 401, 1, 100, ts(50, 0)); of.N != 0 {
		t.Error("an old duplicate is offered")
	}
	if n := p.c.Counters().PAWSDrops; n != 1 {
		t.Errorf("%d PAWS drops", n)
	}
	// A segment without the option is dropped.
	if of := p.in(fA, 401, 1, 100); of.N != 0 {
		t.Error("a segment without timestamps is offered")
	}
	// After 24 days TS.Recent is not valid any more.
	p.out()
	p.now = p.now.Add(25 * 24 * 60 * tick.Minute)
	if of := p.in(fA, 401, 1, 100, ts(50, 0)); of.N != 1 {
		t.Error("PAWS outlives 24 days of idleness")
	}
	p.in(fR, 501, 0, 0, ts(1, 0))
	p.cause(tcp.CauseReset)
}
