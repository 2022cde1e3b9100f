package tcp_test

import (
	"testing"

	"xwarp/tcp"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// TestCookieMSS: a cookie encodes the largest of its eight MSS values that does not exceed the peer's MSS, or the
// smallest one. Without MSS option, the peer's MSS is the default of the IP version (RFC 9293, MUST-15 and 3.7.1).
func TestCookieMSS(t *testing.T) {
	for _, c := range []struct {
		v6   bool
		opts []opt
		want int
	}{
		{false, nil, 536}, {true, nil, 1220}, {false, []opt{mss(536)}, 536},
		{false, []opt{mss(535)}, 216}, {false, []opt{mss(216)}, 216}, {false, []opt{mss(100)}, 216},
		{false, []opt{mss(1219)}, 536}, {true, []opt{mss(1300)}, 1300},
		{true, []opt{mss(1440)}, 1440},
		{false, []opt{mss(1459)}, 1440}, {false, []opt{mss(1460)}, 1460},
		{false, []opt{mss(4311)}, 1460}, {false, []opt{mss(8939)}, 4312},
		{false, []opt{mss(65535)}, 8940},
	} {
		l, now := newListener(tcp.ListenConfig{Cookies: tcp.CookiesAlways,
			Conn: tcp.Config{MTU: 9200, IPv6: c.v6}})
		tu := tuple(4000)
		var out tcp.Out
		l.Input(&tu, segment(fS, 1000, 0, c.opts...), now, &out)
		ack := segment(fA, 1001, out.Seq+1)
		var conn tcp.Conn
		if !l.Accept(&tu, ack, &conn, now) {
			t.Fatal("not accepted")
		}
		conn.Input(ack, now)
		if conn.EMSS() != c.want {
			t.Errorf("version 6 %v: EMSS %d, want %d", c.v6, conn.EMSS(), c.want)
		}
	}
}

// counting is a Gate that admits and counts all half-open connections.
type counting struct{ open, done int }

func (g *counting) Admit(*tcp.Tuple, tick.Time) bool { g.open++; return true }
func (g *counting) Release(*tcp.Tuple, tick.Time)    { g.done++ }

// TestListenerRemovesEntries: Refuse and Close end half-open connections, once each. Accept does not find the refused
// one afterwards.
func TestListenerRemovesEntries(t *testing.T) {
	var g counting
	l, now := newListener(tcp.ListenConfig{Backlog: 4, Gate: &g})
	var out tcp.Out
	for i := range 3 {
		tu := tuple(uint16(i))
		l.Input(&tu, segment(fS, 1000, 0), now, &out)
	}
	tu := tuple(2)
	ack := segment(fA, 1001, out.Seq+1)
	if v := l.Input(&tu, ack, now, &out); v != tcp.Ready {
		t.Fatalf("verdict %v", v)
	}
	for _, step := range []struct {
		name          string
		do            func()
		pending, done int
	}{
		{"Refuse", func() { l.Refuse(&tu, now) }, 2, 1},
		{"Refuse again", func() { l.Refuse(&tu, now) }, 2, 1},
		{"Close", func() { l.Close(now) }, 0, 3},
		{"Close again", func() { l.Close(now) }, 0, 3},
	} {
		step.do()
		if l.Pending() != step.pending || g.open != 3 || g.done != step.done {
			t.Errorf("%s: %d half-open, want %d; gate %+v, want %d done", step.name, l.Pending(),
				step.pending, g, step.done)
		}
	}
	var conn tcp.Conn
	if l.Accept(&tu, ack, &conn, now) || l.Counters().Accepted != 0 {
		t.Error("accepted what was refused")
	}
}

// TestSYNACKWithoutECN: the first two SYN-ACKs grant RFC 9768, the first one with the option. If they are not
// acknowledged, later ones have no ECN bits, and Info then reports NoECT (RFC 9768, 3.1.4.2 and 3.2.3.2.2).
func TestSYNACKWithoutECN(t *testing.T) {
	for last := range 4 { // index of the SYN-ACK that is acknowledged
		l, now := newListener(tcp.ListenConfig{Conn: tcp.Config{ECN: tcp.ECNPassive}})
		tu := tuple(4000)
		var out tcp.Out
		l.Input(&tu, segment(fS|allECN, 1000, 0, mss(1000)), now, &out)
		for i := 0; ; i++ {
			bits, option := 2, out.Opt.Present.Has(wire.HasAccECN0)
			if i >= 2 {
				bits = 0
			}
			if aceOf(out.Flags) != bits || option != (i == 0) {
				t.Errorf("SYN-ACK %d: %v, option %v", i, &out.Header, option)
			}
			if i == last {
				break
			}
			now = l.Deadline()
			if !l.Poll(now, &tu, &out) {
				t.Fatal("no SYN-ACK")
			}
			for l.Poll(now, &tu, new(tcp.Out)) {
			}
		}
		ack := segment(fA, 1001, out.Seq+1, ace(2))
		var conn tcp.Conn
		if !l.Accept(&tu, ack, &conn, now) {
			t.Fatal("not accepted")
		}
		conn.Input(ack, now)
		conn.Finish(now)
		if i := conn.Info(now); i.NoECT != (last >= 2) || i.ECN != tcp.ECNAccurate {
			t.Errorf("after %d SYN-ACKs: mode %d, no ECT %v", last+1, i.ECN, i.NoECT)
		}
	}
}

// TestSYNForHalfOpenConn: in SYN-RECEIVED after a passive open, a SYN in the window ends the connection (RFC 9293,
// 3.10.7.4, fourth). After an active open it causes a challenge ACK only (RFC 5961, 4.2).
//
//req:rfc9293-MUST-11
func TestSYNForHalfOpenConn(t *testing.T) {
	l, now := newListener(tcp.ListenConfig{})
	tu := tuple(4000)
	var out tcp.Out
	l.Input(&tu, segment(fS, irs, 0), now, &out)
	p := newPeer(t, tcp.Config{})
	p.now = now
	if !l.Accept(&tu, segment(fA, irs+1, out.Seq+1), &p.c, now) {
		t.Fatal("not accepted")
	}
	p.in(fS, 100, 0, 0)
	p.cause(tcp.CauseRefused)
	p.want()
	p = newPeer(t, tcp.Config{})
	p.c.Connect(p.now)
	p.out()
	p.in(fS, 0, 0, 0)
	p.out()
	p.in(fS, 100, 0, 0)
	p.state(tcp.SynReceived)
	p.want(". 1 ack 1")
}

// TestCookieTailHalfOpen: a SYN arrived twice, and was answered first with a cookie and then with the number of a
// half-open connection. The peer uses the cookie, and its second segment overtakes the first: it must not be answered
// with RST.
func TestCookieTailHalfOpen(t *testing.T) {
	l, now := newListener(tcp.ListenConfig{Backlog: 1})
	var out tcp.Out
	other, tu := tuple(1), tuple(4000)
	l.Input(&other, segment(fS, 1, 0), now, &out)
	l.Input(&tu, segment(fS, 1000, 0), now, &out)
	cookie := out.Seq
	l.Input(&other, segment(fR, 2, 0), now, &out)
	l.Input(&tu, segment(fS, 1000, 0), now, &out)
	second := segment(fA, 1501, cookie+1)
	second.Len = 100
	if v := l.Input(&tu, second, now, &out); v != tcp.Drop || l.Counters().CookieTails != 1 ||
		l.Counters().BadAcks != 0 || l.Pending() != 1 {
		t.Errorf("verdict %v, %+v", v, l.Counters())
	}
}

// TestBudgetDefault: Init with 0 or less allows as many challenge ACKs as with 1000 per second.
func TestBudgetDefault(t *testing.T) {
	for _, n := range []int{0, -1} {
		var b, documented tcp.ChallengeBudget
		b.Init(n, 3)
		documented.Init(1000, 3)
		for s := range tick.Time(20) {
			for b.Take(s * 1e9) {
			}
			for documented.Take(s * 1e9) {
			}
			if b.Used() != documented.Used() {
				t.Errorf("%d, second %d: %d allowed, of 1000 a second %d", n, s, b.Used(),
					documented.Used())
			}
		}
	}
}

// TestCookieTailPeriod: an unknown ACK is dropped silently if its number may be a cookie of this or the previous
// period, which its five upper bits show; any other one is answered with a RST.
func TestCookieTailPeriod(t *testing.T) {
	const low = 1<<27 - 1
	l, now := newListener(tcp.ListenConfig{Cookies: tcp.CookiesAlways})
	tu := tuple(4000)
	var out tcp.Out
	l.Input(&tu, segment(fS, 1000, 0), now, &out)
	p := uint32(out.Seq) >> 27
	for _, c := range []struct {
		back uint32 // periods
		low  uint32
		drop bool
	}{{0, 0, true}, {0, low, true}, {1, 0, true}, {1, low, true}, {2, low, false}, {31, 0, false}} {
		cookie := seq.Num((p-c.back)<<27 | c.low)
		s := segment(fA, 5000, cookie+1)
		s.Len = 100
		if v := l.Input(&tu, s, now, &out); (v == tcp.Drop) != c.drop || v == tcp.Ready {
			t.Errorf("%d periods back, %#x behind the period: verdict %v", c.back, c.low, v)
		}
	}
}
