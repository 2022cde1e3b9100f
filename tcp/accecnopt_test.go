package tcp_test

import (
	"fmt"
	"testing"

	"xwarp/tcp"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// optionOf returns the counters of the AccECN option as text, after true for order 1 and false for order 0. It is empty
// without option.
func optionOf(o *wire.Options) string {
	if o.Present&(wire.HasAccECN0|wire.HasAccECN1) == 0 {
		return ""
	}
	return fmt.Sprint(o.Present.Has(wire.HasAccECN1), o.AccECN[:o.NAccECN])
}

// TestAccECNOption: "The Data Receiver SHOULD include an AccECN TCP Option on every scheduled ACK if any byte counter
// has incremented since the last ACK" (RFC 9768, 3.2.3.3). The first three options are sent even if no counter changed.
//
//req:rfc9768-3.2-2 rfc9768-3.2.3-6 rfc9768-3.2.3.2.1-4 rfc9768-3.2.3.2.3-2 rfc9768-3.2.3.3-3 rfc9768-3.2.3.3-4
//req:rfc9768-3.2.3.3-7
func TestAccECNOption(t *testing.T) {
	p := accurate(t, 0) // it has sent the first option
	at := 1
	for i, c := range []struct {
		e    tcp.ECN
		want string
	}{
		{tcp.NotECT, "false [1 0 1]"}, {tcp.NotECT, "false [1 0 1]"}, {tcp.NotECT, ""},
		{tcp.ECT1, "false [1 0 11]"}, {tcp.ECT1, "false [1 0 21]"}, {tcp.ECT0, "false [11 0 21]"},
		{tcp.NotECT, ""}, {tcp.CE, "false [11 10 21]"}, {tcp.ECT1, "false [11 10 31]"},
	} {
		p.in(fA, at, 1, 10, ecnIP(c.e), ace(5))
		at += 10
		p.c.AckNow()
		var o tcp.Out
		if !p.c.Poll(p.now, nil, &o) || optionOf(&o.Opt) != c.want {
			t.Errorf("segment %d, IP bits %d: option %q, want %q", i, c.e, optionOf(&o.Opt), c.want)
		}
	}
}

// TestAccECNOptionRoom: two SACK blocks take precedence over the option. A change of the CE counter takes precedence
// over a third block, changes of the other counters do not. If three counters do not fit, the option has two, in the
// order that includes those that changed. If there is no such order, there is no option (RFC 9768, 3.2.3.3).
//
//req:rfc9768-3.1.1-7 rfc9768-3.2.3-1 rfc9768-3.2.3-2 rfc9768-3.2.3.3-1 rfc9768-3.2.3.3-2 rfc9768-3.2.3.3-4
//req:rfc9768-3.2.3.3-5 rfc9768-3.2.3.3-8
func TestAccECNOptionRoom(t *testing.T) {
	for _, c := range []struct {
		stamps bool
		marks  []tcp.ECN // ECN bits of segments behind holes
		blocks int       // SACK blocks of the last acknowledgement
		want   string
	}{
		{false, []tcp.ECN{tcp.ECT0}, 1, "false [101 0 1]"},
		{false, []tcp.ECN{tcp.ECT0, tcp.ECT0, tcp.ECT0}, 3, "false [301 0 1]"},
		{false, []tcp.ECN{tcp.ECT0, tcp.ECT0, tcp.ECT0, tcp.ECT0}, 4, ""},
		{false, []tcp.ECN{tcp.CE, tcp.CE, tcp.CE, tcp.CE}, 3, "false [1 400 1]"},
		{true, []tcp.ECN{tcp.ECT0}, 1, "false [101 0 1]"},
		{true, []tcp.ECN{tcp.ECT0, tcp.ECT0}, 2, "false [201 0]"},
		{true, []tcp.ECN{tcp.ECT1, tcp.ECT1}, 2, "true [201 0]"},
		{true, []tcp.ECN{tcp.ECT1, tcp.ECT0}, 2, "false [101 0]"},
		{true, []tcp.ECN{tcp.ECT0, tcp.ECT0, tcp.ECT0}, 3, ""},
		{true, []tcp.ECN{tcp.ECT0, tcp.ECT0, tcp.ECT0, tcp.CE}, 2, "false [301 100]"},
		{true, []tcp.ECN{tcp.ECT0, tcp.ECT0, tcp.ECT0, tcp.ECT1}, 3, ""},
	} {
		opts := []opt{sackOK()}
		if c.stamps {
			opts = append(opts, ts(1, 0))
		}
		p := accurate(t, 0, opts...)
		var o tcp.Out
		for i, e := range c.marks {
			p.in(fA, 201+200*i, 1, 100, append(opts[1:], ecnIP(e), ace(5))...)
			for p.c.Poll(p.now, nil, &o) {
			}
		}
		if got := optionOf(&o.Opt); got != c.want || int(o.Opt.NSACK) != c.blocks ||
			o.Opt.Len() > wire.MaxOptionsLen {
			t.Errorf("timestamps %v, IP bits %v: option %q with %d blocks, want %q with %d",
				c.stamps, c.marks, got, o.Opt.NSACK, c.want, c.blocks)
		}
	}
}

// TestAccECNOptionBehindData: "the TCP Client SHOULD also include an AccECN Option on the first data segment it sends",
// "it SHOULD fall back to no AccECN Option on the retransmission" (RFC 9768, 3.2.3.2). The option never makes a segment
// carry less data. If it does not fit and the CE counter changed, a pure ACK carries it.
//
//req:rfc9768-3.2.3.2.1-5 rfc9768-3.2.3.2.2-2 rfc9768-3.2.3.3-8
func TestAccECNOptionBehindData(t *testing.T) {
	p := accurate(t, 0)
	poll := func() (got []string) {
		var o tcp.Out
		for p.c.Poll(p.now, &p.src, &o) {
			if o.Payload.Len()+len(optionOf(&o.Opt)) > 0 && o.Payload.Len()+
				max(0, o.Opt.Len()) > p.c.EMSS() {
				t.Errorf("%d bytes and %d of options, EMSS %d", o.Payload.Len(), o.Opt.Len(),
					p.c.EMSS())
			}
			got = append(got, fmt.Sprintf("%d %s", o.Payload.Len(), optionOf(&o.Opt)))
		}
		return got
	}
	want := func(lines ...string) {
		t.Helper()
		if got := poll(); fmt.Sprint(got) != fmt.Sprint(lines) {
			t.Errorf("sent %q, want %q", got, lines)
		}
	}
	p.src.sizes = []int{100, 988, 988, 989, 1000}
	want("100 false [1 0 1]", "988 ", "988 ", "989 ", "1000 ") // no counter changed
	p.in(fA, 1, 4066, 1000, ace(5), ecnIP(tcp.ECT0))
	p.src.sizes = []int{992, 1000}
	want("992 false [1001 0]", "1000 ")
	p.in(fA, 1001, 6058, 1000, ace(5), ecnIP(tcp.CE))
	p.src.sizes = []int{1000, 1000}
	want("1000 ", "1000 ", "0 false [1001 1000 1]")
	p.in(fA, 2001, 8058, 100, ace(5), ecnIP(tcp.ECT0))
	p.src.sizes = []int{100}
	want("100 false [1101 1000 1]")
	p.in(fA, 2101, 8058, 100, ace(5), ecnIP(tcp.ECT0))
	p.pass(3 * tick.Second / 2) // the segment is lost
	want("100 ")
}

// TestAccECNOptionInterval: "It SHOULD include each counter at least once for every 2^22 bytes incremented to prevent
// overflow" (RFC 9768, 3.2.3.3), also when both sides send full segments.
//
//req:rfc9768-3.2.3.1-1 rfc9768-3.2.3.3-9
func TestAccECNOptionInterval(t *testing.T) {
	p := accurate(t, 0)
	var told, acks int
	got := 0
	for i := range 20_000 {
		p.c.SetRcvSpace(1<<16, p.now)
		p.in(fA, 1+1000*i, 1+1000*i, 1000, ace(5), ecnIP(tcp.ECT0))
		got += 1000
		p.src.sizes = []int{1000}
		var o tcp.Out
		for p.c.Poll(p.now, &p.src, &o) {
			if o.Payload.Len() == 0 {
				acks++
			}
			if optionOf(&o.Opt) != "" {
				if told = got; o.Opt.AccECN[0] != uint32(got+1)&0xffffff {
					t.Fatalf("told %d of %d bytes", o.Opt.AccECN[0], got)
				}
			}
		}
		if got-told >= 1<<22 {
			t.Fatalf("%d bytes since the last option", got-told)
		}
		p.now = p.now.Add(tick.Millisecond)
	}
	if acks > 20 {
		t.Errorf("%d acknowledgements of their own for 20 MB", acks)
	}
}

// TestAccECNAcksOfAcks: "An AccECN receiver of a packet MUST emit an ACK if 'n' CE marks have arrived since the
// previous ACK. If there is unacknowledged data at the receiver, 'n' SHOULD be 2. If there is no unacknowledged data
// at the receiver, 'n' SHOULD be 3 and MUST be no less than 3" (RFC 9768, 3.2.2.5.1).
//
//req:rfc9768-3.2.2.5.1-2 rfc9768-3.2.2.5.1-3 rfc9768-3.2.2.5.1-5
func TestAccECNAcksOfAcks(t *testing.T) {
	p := accurate(t, 0, sackOK())
	mark := func(want int) (o tcp.Out) {
		t.Helper()
		p.in(fA, p.c.RcvNxt().Diff(irs), 1, 0, ecnIP(tcp.CE), ace(5))
		n := 0
		for p.c.Poll(p.now, &p.src, &o) {
			n++
		}
		if n != want {
			t.Errorf("%d segments, want %d", n, want)
		}
		return o
	}
	for range 3 {
		mark(0)
		mark(0)
		mark(1)
	}
	mark(0)
	mark(0)
	p.send(1) // which reports the two marks
	mark(0)
	mark(0)
	mark(1)
	p.in(fA, 1, 1, 0, ace(5))
	p.in(fA, 1, 1, 10, ace(5)) // its acknowledgement is delayed
	mark(0)
	if o := mark(1); o.Ack.Diff(irs) != 11 {
		t.Errorf("acknowledges %d, want 11", o.Ack.Diff(irs))
	}
	mark(0)
	mark(0)
	if o := mark(1); aceOf(o.Flags) != (5+19)%8 {
		t.Errorf("ACE %d after 19 marks", aceOf(o.Flags))
	}
	p.in(fA, 101, 1, 10, ace(5)) // behind a hole
	if got := p.out(); len(got) != 1 {
		t.Fatalf("behind a hole: %q", got)
	}
	mark(0)
	mark(0)
	// "these ACKs of ACKs MUST NOT contain any SACK blocks"
	if o := mark(1); o.Opt.Present&wire.HasSACK != 0 {
		t.Errorf("an ACK of ACKs: %v", &o.Header)
	}
}

// TestAccECNNoAckLoop: if the path marks every packet, and both ends acknowledge ACKs, they still stop after a while:
// "any resulting ping-pong of ACKs will be rapidly damped" (RFC 9768, 3.2.2.5.1).
//
//req:rfc9768-3.2.2.5.1-3
func TestAccECNNoAckLoop(t *testing.T) {
	for _, sack := range []bool{false, true} {
		c := tcp.Config{ECN: tcp.ECNAccurate, NoSACK: !sack}
		p := newPipe(t, 5, c, c)
		p.markAll = true
		p.exchange(300_000, 200_000)
		p.a.noShut, p.b.noShut = true, true
		p.connect()
		end := p.now.Add(20 * tick.Second)
		for p.now < end && p.step() {
		}
		if p.a.got != 200_000 || p.b.got != 300_000 {
			t.Errorf("SACK %v: %d and %d bytes arrived", sack, p.a.got, p.b.got)
		}
		if p.a.c.Counters().CEIn < 100 || p.b.c.Counters().CEIn < 100 {
			t.Errorf("SACK %v: too few marks", sack)
		}
		if p.now >= end {
			t.Errorf("SACK %v: they still talk after %d segments", sack, p.sent)
		}
	}
}

// TestAccECNReconcile: "If either endpoint detects that the s.ceb counter has increased but the s.cep has not (and by
// testing ACK coverage it is certain how much the ACE field has wrapped) … the Data Sender MUST disable sending
// ECN-capable packets for the remainder of the half-connection" (RFC 9768, 3.2.3.2.5).
//
//req:rfc9768-3.2.3.2.5-1 rfc9768-3.2.3.2.5-2
func TestAccECNReconcile(t *testing.T) {
	type ack struct {
		segments, ace int
		ce            int // CE counter in the option; -1: no option
	}
	for _, c := range []struct {
		name  string
		acks  []ack
		noECT bool
	}{
		{"no mark", []ack{{1, 5, 0}, {2, 5, 0}}, false},
		{"bytes and a packet", []ack{{1, 6, 1000}}, false},
		{"bytes without a packet", []ack{{1, 5, 1000}}, true},
		{"seven packets", []ack{{7, 5, 1000}}, true},
		{"the field may have gone round", []ack{{8, 5, 8000}}, false},
		{"the packet was told before", []ack{{1, 6, -1}, {2, 6, 1000}}, false},
		{"the field may have gone round before", []ack{{9, 5, -1}, {10, 5, 8000}}, false},
		{"later", []ack{{9, 5, 8000}, {10, 6, 9000}, {11, 6, 10_000}}, true},
		{"a packet without bytes", []ack{{1, 6, 0}}, false},
	} {
		p := accurate(t, 12)
		for _, a := range c.acks {
			opts := []opt{ace(a.ace)}
			if a.ce >= 0 {
				opts = append(opts, accECNOption(3, uint32(a.ce)))
			}
			p.in(fA, 1, 1+1000*a.segments, 0, opts...)
		}
		if got := p.c.Info(p.now).NoECT; got != c.noECT {
			t.Errorf("%s: no ECT %v, want %v", c.name, got, c.noECT)
		}
		p.now = p.now.Add(tick.Millisecond)
		p.in(fA, 1, 12001, 0, ace(c.acks[len(c.acks)-1].ace))
		p.src.sizes = []int{1000}
		var o tcp.Out
		for p.c.Poll(p.now, &p.src, &o) {
			if o.Payload.Len() > 0 && (o.ECN == tcp.NotECT) != c.noECT {
				t.Errorf("%s: IP bits %d afterwards", c.name, o.ECN)
			}
		}
	}
	// A retransmitted segment may have arrived twice, so the field may have wrapped.
	p := accurate(t, 4)
	for range 5 {
		p.wait(p.c.Deadline().Sub(p.now))
		p.out()
	}
	p.in(fA, 1, 4001, 0, ace(5), accECNOption(3, 8000))
	if p.c.LossCounters().Retransmitted < 4 || p.c.Info(p.now).NoECT {
		t.Errorf("sent again %d times: no ECT %v", p.c.LossCounters().Retransmitted,
			p.c.Info(p.now).NoECT)
	}
}

// TestAccECNOptionStops: feedback uses the ACE field again when options no longer arrive, "so that the state of the
// ACE-related packet counter can be relied on if future feedback does not carry an AccECN Option" (RFC 9768,
// 3.2.3.2.5).
//
//req:rfc9768-3.2.2.5.2-1 rfc9768-3.2.3.2.3-1 rfc9768-3.2.3.2.3-3 rfc9768-3.2.3.2.5-1
func TestAccECNOptionStops(t *testing.T) {
	p := accurate(t, 30)
	for i, c := range []struct {
		acked, ace int
		ce         int // CE counter in the option; -1: no option
		want       uint64
	}{
		{1000, 6, 500, 500}, {2000, 7, -1, 1500}, {3000, 7, 1500, 1500}, {4000, 8, -1, 2500},
		{14000, 9, -1, 11500}, // 9 of 10 packets are the largest likely number
	} {
		opts := []opt{ace(c.ace % 8)}
		if c.ce >= 0 {
			opts = append(opts, accECNOption(3, uint32(c.ce)))
		}
		p.in(fA, 1, 1+c.acked, 0, opts...)
		if got := p.c.Counters().CEBytesOut; got != c.want {
			t.Errorf("acknowledgement %d: %d bytes marked, want %d", i, got, c.want)
		}
	}
}
