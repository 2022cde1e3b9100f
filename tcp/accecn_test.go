package tcp_test

import (
	"testing"

	"xwarp/tcp"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// aceOf returns the ACE field: AE, CWR and ECE as one number.
func aceOf(f wire.Flags) (n int) {
	for i, b := range []wire.Flags{wire.ECE, wire.CWR, wire.AE} {
		if f&b != 0 {
			n |= 1 << i
		}
	}
	return n
}

// TestAccECN checks the counters of RFC 9768 in both directions.
//
//req:rfc9768-3.1.1-1 rfc9768-3.1.5-12 rfc9768-3.2-1 rfc9768-3.2.2-2 rfc9768-3.2.3.2.1-1 rfc9768-3.2.3.2.5-1
func TestAccECN(t *testing.T) {
	p := newPeer(t, tcp.Config{ECN: tcp.ECNAccurate, QuickAcks: -1})
	p.c.Connect(p.now)
	if f, _ := flagsOf(p); aceOf(f[0]) != 7 {
		t.Fatalf("SYN %v", f)
	}
	p.in(fSA, 0, 1, 0, mss(1000), flags(wire.CWR), ecnIP(tcp.ECT0)) // our SYN: Not-ECT; SYN-ACK: ECT(0)
	var o tcp.Out
	p.c.Poll(p.now, nil, &o)
	if aceOf(o.Flags) != 4 {
		t.Errorf("the handshake's ACK says %d, want 4 (table 3)", aceOf(o.Flags))
	}
	p.in(fA, 1, 1, 100, ecnIP(tcp.CE))
	p.c.Poll(p.now, nil, &o)
	if aceOf(o.Flags) != 6 || !o.Opt.Present.Has(wire.HasAccECN0) ||
		o.Opt.AccECN != [3]uint32{1, 100, 1} {
		t.Errorf("after one marked packet: ACE %d, %v", aceOf(o.Flags), &o.Opt)
	}
	for i := range 3 {
		p.in(fA, 101+100*i, 1, 100, ecnIP(tcp.CE))
	}
	for p.c.Poll(p.now, nil, &o) {
	}
	if aceOf(o.Flags) != (5+4)%8 {
		t.Errorf("after four marked packets: ACE %d", aceOf(o.Flags))
	}
	// Segments with EMSS bytes of data have no room for the option.
	p.src.sizes = []int{1000, 1000, 1000, 1000}
	for p.c.Poll(p.now, &p.src, &o) {
		if o.Payload.Len() > 0 && o.Opt.Present&(wire.HasAccECN0|wire.HasAccECN1) != 0 {
			t.Errorf("option on bytes: %v", &o.Header)
		}
		if o.Payload.Len() > 0 && o.ECN != tcp.ECT0 {
			t.Errorf("bytes with IP bits %d", o.ECN)
		}
	}
	// The ACE field reports two marked packets, without an option.
	p.in(fA, 401, 2001, 0, flags(wire.AE|wire.CWR|wire.ECE)) // 7 = 5 + 2
	if n := p.c.Counters().CEBytesOut; n != 2000 {
		t.Errorf("%d bytes reported as marked, want 2000", n)
	}
	p.in(fA, 401, 4001, 0, flags(wire.AE|wire.CWR|wire.ECE), func(s *tcp.Segment) {
		s.Opt.Present |= wire.HasAccECN1
		s.Opt.NAccECN, s.Opt.AccECN = 3, [3]uint32{1, 2500, 1}
	})
	if n := p.c.Counters().CEBytesOut; n != 2500 {
		t.Errorf("%d bytes reported as marked, want 2500: the option makes the guess exact", n)
	}
}

// TestAccECNHandshakeACK: a pure ACK echoes the ECN bits of the SYN-ACK. It is sent before data that waits, because a
// segment with data cannot echo them (RFC 9768, 3.2.2.1). Later segments carry the counter.
//
//req:rfc9768-3.2.2.1-1 rfc9768-3.2.2.1-2
func TestAccECNHandshakeACK(t *testing.T) {
	p := newPeer(t, tcp.Config{ECN: tcp.ECNAccurate, QuickAcks: -1})
	p.c.Connect(p.now)
	p.out()
	p.src.sizes = []int{1000}
	p.in(fSA, 0, 1, 0, mss(1000), flags(wire.CWR), ecnIP(tcp.CE))
	var o tcp.Out
	var got []int
	var sizes []int
	for p.c.Poll(p.now, &p.src, &o) {
		got, sizes = append(got, aceOf(o.Flags)), append(sizes, o.Payload.Len())
	}
	if len(got) != 2 || got[0] != 6 || sizes[0] != 0 || got[1] != 6 || sizes[1] != 1000 {
		t.Errorf(
			"ACE %v with %v bytes, want 6 (CE) on a pure ACK, then 6 (5 and one mark) with 1000",
			got, sizes)
	}
	// The SYN-ACK is repeated while bytes are held behind a hole: an ACK with SACK blocks carries the counter.
	p = newPeer(t, tcp.Config{ECN: tcp.ECNAccurate, QuickAcks: -1})
	p.c.Connect(p.now)
	p.out()
	p.in(fSA, 0, 1, 0, mss(1000), sackOK(), flags(wire.CWR))
	p.out()
	p.in(fA, 101, 1, 100, flags(wire.AE|wire.ECE))
	p.out()
	p.now = p.now.Add(tick.Second)
	p.in(fSA, 0, 1, 0, mss(1000), sackOK(), flags(wire.CWR), ecnIP(tcp.ECT1))
	if !p.c.Poll(p.now, &p.src, &o) || o.Opt.NSACK != 1 || aceOf(o.Flags) != 5 {
		t.Errorf("ACK with SACK blocks: %v", &o.Header)
	}
}

// TestAccECNProbe: a keepalive probe carries the counter, like every segment without SYN (RFC 9768, 3.2.2).
//
//req:rfc9768-3.2.2-2
func TestAccECNProbe(t *testing.T) {
	p := newPeer(t, tcp.Config{ECN: tcp.ECNAccurate, KeepaliveIdle: 10 * tick.Second})
	p.c.Connect(p.now)
	p.out()
	p.in(fSA, 0, 1, 0, mss(1000), flags(wire.CWR))
	p.out()
	p.pass(10 * tick.Second)
	var o tcp.Out
	if !p.c.Poll(p.now, &p.src, &o) || o.Seq != iss || aceOf(o.Flags) != 5 {
		t.Errorf("probe %v, ACE %d, want 5", &o.Header, aceOf(o.Flags))
	}
}

// TestAccECNCrossed: two SYNs cross. The SYN-ACK echoes the ECN bits of the peer's SYN, as that of a server does. If
// the SYN is repeated, the SYN-ACK echoes those of the repetition. A SYN that requests the other kind of ECN resets the
// connection (RFC 9768, 3.1.2 and 3.1.5).
//
//req:rfc9768-3.1.2-6 rfc9768-3.1.5-5 rfc9768-3.1.5-7
func TestAccECNCrossed(t *testing.T) {
	const all = wire.AE | wire.CWR | wire.ECE
	p := newPeer(t, tcp.Config{ECN: tcp.ECNAccurate})
	p.c.Connect(p.now)
	p.out()
	p.in(fS, 0, 0, 0, mss(1000), flags(all), ecnIP(tcp.ECT0))
	if f, _ := flagsOf(p); len(f) != 1 || f[0]&^all != fSA || aceOf(f[0]) != 4 {
		t.Fatalf("SYN-ACK %v", f)
	}
	p.in(fS, 0, 0, 0, mss(1000), flags(all), ecnIP(tcp.ECT1))
	if f, _ := flagsOf(p); len(f) != 1 || f[0]&^all != fSA || aceOf(f[0]) != 3 {
		t.Fatalf("SYN-ACK for the SYN that came again: %v", f)
	}
	p.in(fS, 0, 0, 0, mss(1000), flags(wire.CWR|wire.ECE))
	if f, _ := flagsOf(p); len(f) != 1 || f[0] != fRA || p.c.State() != tcp.Closed {
		t.Errorf("after a SYN for RFC 3168: %v, state %v", f, p.c.State())
	}
}

// TestListenECN: a SYN-ACK with a cookie does not grant a mode that the cookie cannot store. If two SYNs of one client
// request different kinds of ECN, a reset ends the half-open connection, and MixedECN counts it.
//
//req:rfc9768-3.1.5-5 rfc9768-3.1.5-10
func TestListenECN(t *testing.T) {
	const setup, all = wire.CWR | wire.ECE, wire.AE | wire.CWR | wire.ECE
	for _, c := range []struct {
		mode   tcp.ECNMode
		asks   wire.Flags
		grants wire.Flags
	}{
		{tcp.ECNPassive, setup, wire.ECE}, {tcp.ECNPassive, all, 0}, {tcp.ECNPassive, wire.ECE, 0},
		{tcp.ECNPassive, wire.AE | wire.ECE, 0},
		{tcp.ECNClassic, setup, wire.ECE}, {tcp.ECNClassic, all, wire.ECE},
		{tcp.ECNClassic, wire.ECE, 0}, {tcp.ECNOff, setup, 0},
	} {
		l, now := newListener(tcp.ListenConfig{Cookies: tcp.CookiesAlways,
			Conn: tcp.Config{ECN: c.mode}})
		tu := tuple(4000)
		var out tcp.Out
		if v := l.Input(&tu, segment(fS|c.asks, 1000, 0, mss(1460), ts(77, 0)), now,
			&out); v != tcp.Reply || out.Flags != fSA|c.grants {
			t.Errorf("mode %d, cookie for %v: %v", c.mode, c.asks, out.Flags)
		}
	}
	l, now := newListener(tcp.ListenConfig{Conn: tcp.Config{ECN: tcp.ECNPassive}})
	tu := tuple(4000)
	var out tcp.Out
	l.Input(&tu, segment(fS, 1000, 0), now, &out) // without ECN: later SYNs do not change that
	l.Input(&tu, segment(fS|all, 1000, 0), now, &out)
	if out.Flags != fSA {
		t.Errorf("a SYN without ECN came first, the answer is %v", out.Flags)
	}
	if v := l.Input(&tu, segment(fS|setup, 1000, 0), now, &out); v != tcp.Reply ||
		out.Flags != fRA || out.Ack != 1001 || l.Pending() != 0 || l.Counters().MixedECN != 1 {
		t.Errorf("verdict %v, sends %v, %d half-open, %+v", v, &out.Header, l.Pending(),
			l.Counters())
	}
}
