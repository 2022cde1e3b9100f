package tcp_test

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"xwarp/tcp"
	"xwarp/tcp/ip"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

func tuple(port uint16) tcp.Tuple {
	return tcp.Tuple{Local: ip.AddrFrom4([4]byte{10, 0, 0, 2}),
		Remote: ip.AddrFrom4([4]byte{10, 0, 0, 1}), LocalPort: 7, RemotePort: port}
}

func newListener(cfg tcp.ListenConfig) (*tcp.Listener, tick.Time) {
	l := new(tcp.Listener)
	now := tick.Time(5e9)
	cfg.Key = [16]byte{1, 2, 3}
	l.Init(&cfg, now)
	return l, now
}

// TestBacklogDefault: as documented, the SYN cache has 256 entries.
func TestBacklogDefault(t *testing.T) {
	l, now := newListener(tcp.ListenConfig{})
	var out tcp.Out
	for i := range 300 {
		tu := tuple(uint16(i))
		l.Input(&tu, segment(fS, 1, 0), now, &out)
	}
	if l.Pending() != 256 || l.Counters().CookiesSent != 300-256 {
		t.Errorf("%d half-open, %d cookies", l.Pending(), l.Counters().CookiesSent)
	}
}

func segment(f wire.Flags, at, ack seq.Num, opts ...opt) *tcp.Segment {
	s := &tcp.Segment{}
	s.Flags, s.Seq, s.Ack, s.Window = f, at, ack, 1000
	s.SrcPort, s.DstPort = 4000, 7
	for _, o := range opts {
		o(s)
	}
	return s
}

// TestListenState checks the answers in LISTEN (RFC 9293, 3.10.7.2).
//
//req:rfc9293-3.10.7.2-1
func TestListenState(t *testing.T) {
	l, now := newListener(tcp.ListenConfig{})
	tu := tuple(4000)
	var out tcp.Out
	for _, c := range []struct {
		name string
		s    *tcp.Segment
		want tcp.Verdict
		f    wire.Flags
	}{
		{"RST", segment(fR, 5, 0), tcp.Drop, 0},
		{"RST-ACK", segment(fRA, 5, 9), tcp.Drop, 0},
		{"ACK", segment(fA, 5, 9), tcp.Reply, fR},
		{"SYN-ACK", segment(fSA, 5, 9), tcp.Reply, fR},
		{"FIN", segment(fF, 5, 0), tcp.Drop, 0},
		{"nothing", segment(0, 5, 0), tcp.Drop, 0},
	} {
		if v := l.Input(&tu, c.s, now, &out); v != c.want || v == tcp.Reply &&
			(out.Flags != c.f || out.Seq != 9) {
			t.Errorf("%s: verdict %v, sends %v", c.name, v, &out.Header)
		}
	}
	for _, bad := range []ip.Addr{{}, ip.AddrFrom4([4]byte{}), ip.AddrFrom4([4]byte{224, 0, 0, 1}),
		ip.AddrFrom4([4]byte{255, 255, 255, 255}), {0xff, 2}} {
		m := tu
		m.Remote = bad
		if v := l.Input(&m, segment(fS, 5, 0), now, &out); v != tcp.Drop {
			t.Errorf("SYN from %v: verdict %v", bad, v)
		}
	}
	if l.Pending() != 0 || l.Deadline() != tick.Never {
		t.Errorf("%d half-open, deadline %d", l.Pending(), l.Deadline())
	}
}

// TestHalfOpen checks the answers in SYN-RECEIVED after a passive open (RFC 9293, 3.10.7.4).
func TestHalfOpen(t *testing.T) {
	const peerISS = 1000
	for _, c := range []struct {
		name    string
		s       func(iss seq.Num) *tcp.Segment
		want    tcp.Verdict
		f       wire.Flags
		pending int
	}{
		{"ACK", func(i seq.Num) *tcp.Segment { return segment(fA, 1001, i+1) }, tcp.Ready, 0, 1},
		{"ACK with bytes", func(i seq.Num) *tcp.Segment {
			s := segment(fA, 1001, i+1)
			s.Len = 10
			return s
		}, tcp.Ready, 0, 1},
		{"FIN-ACK", func(i seq.Num) *tcp.Segment {
			return segment(fFA, 1001, i+1)
		}, tcp.Ready, 0, 1},
		{"bytes before the ACK", func(i seq.Num) *tcp.Segment {
			s := segment(fA, 1101, i+1)
			s.Len = 10
			return s
		}, tcp.Ready, 0, 1},
		{"ACK of nothing sent", func(i seq.Num) *tcp.Segment {
			return segment(fA, 1001, i+2)
		}, tcp.Reply, fR, 1},
		{"old ACK", func(i seq.Num) *tcp.Segment { return segment(fA, 1001, i) }, tcp.Reply, fR, 1},
		{"the SYN again", func(i seq.Num) *tcp.Segment {
			return segment(fS, 1000, 0)
		}, tcp.Reply, fSA, 1},
		{"another SYN outside", func(i seq.Num) *tcp.Segment {
			return segment(fS, 900, 0)
		}, tcp.Reply, fA, 1},
		{"another SYN in the window", func(i seq.Num) *tcp.Segment {
			return segment(fS, 1100, 0)
		}, tcp.Drop, 0, 0},
		{"exact RST", func(i seq.Num) *tcp.Segment { return segment(fR, 1001, 0) }, tcp.Drop, 0, 0},
		{"RST in the window", func(i seq.Num) *tcp.Segment {
			return segment(fR, 1002, 0)
		}, tcp.Reply, fA, 1},
		{"RST outside", func(i seq.Num) *tcp.Segment {
			return segment(fR, 999, 0)
		}, tcp.Drop, 0, 1},
		{"outside", func(i seq.Num) *tcp.Segment {
			return segment(fA, 1001+70000, i+1)
		}, tcp.Reply, fA, 1},
		{"no ACK", func(i seq.Num) *tcp.Segment { return segment(0, 1001, 0) }, tcp.Drop, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, now := newListener(tcp.ListenConfig{})
			tu := tuple(4000)
			var out tcp.Out
			if v := l.Input(&tu, segment(fS, peerISS, 0, mss(1460), ws(7), sackOK(), ts(77, 0)),
				now, &out); v != tcp.Reply || out.Flags != fSA ||
				out.Ack != peerISS+1 ||
				out.Opt.Present != wire.HasMSS|wire.HasWScale|wire.HasSACKPermitted|wire.HasTS ||
				out.Opt.TSEcr != 77 {
				t.Fatalf("verdict %v, sends %v", v, &out.Header)
			}
			iss := out.Seq
			v := l.Input(&tu, c.s(iss), now.Add(1e6), &out)
			if v != c.want || v == tcp.Reply && out.Flags != c.f || l.Pending() != c.pending {
				t.Fatalf("verdict %v, sends %v, %d half-open", v, &out.Header, l.Pending())
			}
			if c.f == fSA && (out.Seq != iss || out.Ack != peerISS+1) {
				t.Errorf("another SYN-ACK: %v", &out.Header)
			}
			if v != tcp.Ready {
				return
			}
			var conn tcp.Conn
			if !l.Accept(&tu, c.s(iss), &conn, now.Add(1e6)) || conn.State() != tcp.SynReceived ||
				l.Pending() != 0 {
				t.Fatalf("state %v, %d half-open", conn.State(), l.Pending())
			}
			s := c.s(iss)
			ts(77, 0)(s)
			o := conn.Input(s, now.Add(1e6))
			if conn.State() < tcp.Established || s.Len != 0 && o.N != 1 || conn.EMSS() != 1448 {
				t.Errorf("state %v, offers %+v, EMSS %d", conn.State(), o, conn.EMSS())
			}
		})
	}
}

// TestSYNACKTimer: the SYN-ACK is retransmitted with back-off, and then the half-open connection is removed.
func TestSYNACKTimer(t *testing.T) {
	l, now := newListener(tcp.ListenConfig{Conn: tcp.Config{SYNACKRetries: 3}})
	tu := tuple(4000)
	var out tcp.Out
	l.Input(&tu, segment(fS, 1000, 0), now, &out)
	first := out.Seq
	start := now
	var at []int
	for l.Deadline() != tick.Never {
		now = l.Deadline()
		var to tcp.Tuple
		for l.Poll(now, &to, &out) {
			if to != tu || out.Seq != first || !out.Retransmit {
				t.Fatalf("to %v: %v", to, &out.Header)
			}
			at = append(at, int(now.Sub(start)/tick.Second))
		}
	}
	if len(at) != 3 || at[0] != 1 || at[1] != 3 || at[2] != 7 || l.Pending() != 0 ||
		l.Counters().Timeouts != 1 {
		t.Errorf("sent again after %v s, %d half-open", at, l.Pending())
	}
}

// TestSYNFlood fills the SYN cache. Further SYNs get cookies, and a real client among them is accepted, with its
// options if it uses timestamps, which store them. Forged and old cookies are not accepted.
func TestSYNFlood(t *testing.T) {
	for _, withTS := range []bool{true, false} {
		l, now := newListener(tcp.ListenConfig{Backlog: 16})
		var out tcp.Out
		for i := range 1000 {
			tu := tuple(uint16(10000 + i))
			if v := l.Input(&tu, segment(fS, seq.Num(i), 0), now, &out); v != tcp.Reply ||
				out.Flags != fSA {
				t.Fatalf("SYN %d: %v", i, v)
			}
		}
		if l.Pending() != 16 || l.Counters().CookiesSent != 984 {
			t.Fatalf("%d half-open, %d cookies", l.Pending(), l.Counters().CookiesSent)
		}
		announced := int(out.Window) // window of a SYN-ACK with cookie: the largest that it can announce
		opts := []opt{mss(1460), ws(9), sackOK()}
		if withTS {
			opts = append(opts, ts(1234, 0))
		}
		tu := tuple(4000)
		l.Input(&tu, segment(fS, 5000, 0, opts...), now, &out)
		if out.Opt.Present.Has(wire.HasWScale) != withTS ||
			out.Opt.Present.Has(wire.HasSACKPermitted) != withTS {
			t.Errorf("timestamps %v: cookie grants %v", withTS, &out.Opt)
		}
		ack := segment(fA, 5001, out.Seq+1)
		ack.Len = 20
		if withTS {
			ts(1240, out.Opt.TSVal)(ack)
		}
		now = now.Add(70 * tick.Second) // in the next period
		forged := *ack
		for range 1000 {
			forged.Ack += 0x01234567
			if v := l.Input(&tu, &forged, now, &out); forged.Ack != ack.Ack && v == tcp.Ready {
				t.Fatal("a forged cookie is taken")
			}
		}
		if v := l.Input(&tu, ack, now, &out); v != tcp.Ready {
			t.Fatalf("timestamps %v: the cookie's ACK is %v", withTS, v)
		}
		var c tcp.Conn
		if !l.Accept(&tu, ack, &c, now) {
			t.Fatal("Accept refuses the cookie")
		}
		if got := c.Info(now).RcvWnd; got != announced {
			t.Errorf("the connection begins with a window of %d, the SYN-ACK said %d", got,
				announced)
		}
		o := c.Input(ack, now)
		i := c.Info(now)
		if o.N != 1 || c.State() != tcp.Established || i.SACK != withTS ||
			i.WindowScaling != withTS || withTS && i.SndWScale != 9 || i.Timestamps != withTS {
			t.Errorf("offer %+v, %v, %+v", o, c.State(), i)
		}
		if want := 1460 - map[bool]int{true: 12}[withTS]; c.EMSS() != want {
			t.Errorf("EMSS %d, want %d", c.EMSS(), want)
		}
		now = now.Add(3 * 64 * tick.Second)
		if v := l.Input(&tu, ack, now, &out); v == tcp.Ready {
			t.Error("an old cookie is taken")
		}
	}
}

// TestCookieRewritten: a cookie with changed bits of period or MSS is invalid.
func TestCookieRewritten(t *testing.T) {
	l, now := newListener(tcp.ListenConfig{Cookies: tcp.CookiesAlways})
	tu, other := tuple(4000), tuple(4001)
	var out tcp.Out
	l.Input(&tu, segment(fS, 5000, 0, mss(1460)), now, &out)
	cookie := out.Seq
	for age := range seq.Num(32) {
		l.Input(&other, segment(fS, 1, 0), now, &out) // so that ACKs are still checked for cookies
		for bits := range seq.Num(8) {
			c := cookie + age<<27 ^ bits<<24
			v := l.Input(&tu, segment(fA, 5001, c+1), now, &out)
			if good := age == 0 && bits == 0; (v == tcp.Ready) != good {
				t.Errorf("%d periods later, with the MSS bits changed by %d: %v", age, bits, v)
			}
		}
		now = now.Add(64 * tick.Second)
	}
}

// TestCookieECN: the timestamp of a cookie also encodes whether ECN was granted.
func TestCookieECN(t *testing.T) {
	const setup = wire.CWR | wire.ECE
	for _, asks := range []wire.Flags{0, setup} {
		l, now := newListener(tcp.ListenConfig{Cookies: tcp.CookiesAlways,
			Conn: tcp.Config{ECN: tcp.ECNClassic}})
		tu := tuple(4000)
		var out tcp.Out
		l.Input(&tu, segment(fS|asks, 5000, 0, ws(9), sackOK(), ts(1234, 0)), now, &out)
		ack := segment(fA, 5001, out.Seq+1, ts(1240, out.Opt.TSVal))
		var c tcp.Conn
		if v := l.Input(&tu, ack, now, &out); v != tcp.Ready || !l.Accept(&tu, ack, &c, now) {
			t.Fatalf("the ACK of the cookie: %v", v)
		}
		c.Input(ack, now)
		if i := c.Info(now); (i.ECN == tcp.ECNClassic) != (asks == setup) || !i.SACK ||
			i.SndWScale != 9 {
			t.Errorf("asked for ECN with %v: %+v", asks, i)
		}
	}
}

// TestCookieThenCache: a SYN is answered with a cookie. Its duplicate arrives when there is room in the SYN cache
// again, and is answered with another number. An ACK of the cookie opens the connection all the same.
func TestCookieThenCache(t *testing.T) {
	l, now := newListener(tcp.ListenConfig{Backlog: 1})
	var out tcp.Out
	other, tu := tuple(1), tuple(4000)
	l.Input(&other, segment(wire.SYN, 1, 0), now, &out)
	l.Input(&tu, segment(wire.SYN, 1000, 0), now, &out)
	cookie := out.Seq
	l.Input(&other, segment(wire.RST, 2, 0), now, &out)
	if v := l.Input(&tu, segment(wire.SYN, 1000, 0), now, &out); v != tcp.Reply ||
		out.Seq == cookie || l.Pending() != 1 {
		t.Fatalf("the duplicate: %v, half-open %d", v, l.Pending())
	}
	ack := segment(wire.ACK, 1001, cookie+1)
	if v := l.Input(&tu, ack, now, &out); v != tcp.Ready {
		t.Fatalf("the ACK of the cookie: %v, want ready", v)
	}
	var c tcp.Conn
	if !l.Accept(&tu, ack, &c, now) || l.Pending() != 0 {
		t.Errorf("not accepted, or %d half-open", l.Pending())
	}
}

// TestCookieOvertaken: the second segment of a connection arrives before the first. It has no valid cookie, but a RST
// would end the connection, whose handshake is complete for the peer. So it is dropped silently while a cookie was sent
// at most 30 s ago.
func TestCookieOvertaken(t *testing.T) {
	l, now := newListener(tcp.ListenConfig{Cookies: tcp.CookiesAlways})
	tu := tuple(4000)
	var out tcp.Out
	if v := l.Input(&tu, segment(wire.SYN, 1000, 0), now, &out); v != tcp.Reply {
		t.Fatalf("SYN: %v", v)
	}
	iss := out.Seq
	second := segment(wire.ACK, 1501, iss+1)
	second.Len = 500
	if v := l.Input(&tu, second, now, &out); v != tcp.Drop {
		t.Errorf("the segment that overtook: %v, want silence", v)
	}
	third := segment(wire.ACK, 2001, iss+1) // the answer to a duplicate SYN-ACK
	if v := l.Input(&tu, third, now, &out); v != tcp.Drop {
		t.Errorf("an acknowledgement that overtook: %v, want silence", v)
	}
	first := segment(wire.ACK, 1001, iss+1)
	first.Len = 500
	if v := l.Input(&tu, first, now, &out); v != tcp.Ready {
		t.Errorf("the one before it: %v, want ready", v)
	}
	if v := l.Input(&tu, second, now.Add(31*tick.Second), &out); v != tcp.Reply ||
		out.Flags&wire.RST == 0 {
		t.Errorf("without a cookie for 30 s: %v, want RST", v)
	}
	stale := segment(wire.ACK, 1501, iss+1+8<<27) // no current cookie has this period
	if v := l.Input(&tu, stale, now, &out); v != tcp.Reply || out.Flags&wire.RST == 0 {
		t.Errorf("a segment of a connection that is gone: %v, want RST at once", v)
	}
}

func TestListenNoCookies(t *testing.T) {
	l, now := newListener(tcp.ListenConfig{Backlog: 2, Cookies: tcp.CookiesNever})
	var out tcp.Out
	for i := range 3 {
		tu := tuple(uint16(10000 + i))
		if v := l.Input(&tu, segment(fS, 1, 0), now, &out); (v == tcp.Reply) != (i < 2) {
			t.Errorf("SYN %d: %v", i, v)
		}
	}
	if l.Counters().Overflows != 1 {
		t.Errorf("%+v", l.Counters())
	}
}

// TestSipHash checks vectors of the SipHash paper's appendix and of its reference code.
//
//req:rfc9293-SHLD-1 rfc9293-MUST-9
func TestSipHash(t *testing.T) {
	var key [16]byte
	for i := range key {
		key[i] = byte(i)
	}
	msg := make([]byte, 64)
	for i := range msg {
		msg[i] = byte(i)
	}
	for n, want := range map[int]uint64{0: 0x726fdb47dd0e0e31, 1: 0x74f839c593dc67fd,
		15: 0xa129ca6149be45e5} {
		if got := tcp.SipHash(&key, msg[:n]); got != want {
			t.Errorf("%d bytes: %#x, want %#x", n, got, want)
		}
	}
}

// TestISN checks RFC 6528: ISNs of one tuple grow with time; those of different tuples or keys are unrelated.
//
//req:rfc9293-MUST-8 rfc9293-SHLD-1 rfc9293-MUST-9 rfc7323-5.4-2
func TestISN(t *testing.T) {
	key, other := [16]byte{1}, [16]byte{2}
	a, b := tuple(1), tuple(2)
	now := tick.Time(1e12)
	for range 1000 {
		later := now.Add(tick.Second)
		if d := tcp.ISN(&key, &a, later).Diff(tcp.ISN(&key, &a, now)); d != 250_000 {
			t.Fatalf("moves by %d in a second, want 250000", d)
		}
		now = later
	}
	near := 0
	r := rand.New(rand.NewPCG(1, 1))
	for range 1000 {
		binary.BigEndian.PutUint32(a.Remote[12:], r.Uint32())
		for _, x := range []seq.Num{tcp.ISN(&key, &b, now), tcp.ISN(&other, &a, now)} {
			if d := tcp.ISN(&key, &a, now).Diff(x); d < 1<<22 && d > -1<<22 {
				near++
			}
		}
	}
	if near > 20 { // of 2000 random numbers, about 4 would be near
		t.Errorf("%d of 2000 ISNs are near to another tuple's or key's", near)
	}
	for i := range 2*len(a.Local) + 4 {
		x := a
		switch n := len(a.Local); {
		case i < n:
			x.Local[i] ^= 1
		case i < 2*n:
			x.Remote[i-n] ^= 1
		case i < 2*n+2:
			x.LocalPort ^= 1 << (8 * (i - 2*n))
		default:
			x.RemotePort ^= 1 << (8 * (i - 2*n - 2))
		}
		if tcp.ISN(&key, &a, now) == tcp.ISN(&key, &x, now) {
			t.Errorf("byte %d of the tuple does not matter", i)
		}
	}
	if tcp.TSOffset(&key, &a) == tcp.TSOffset(&key, &b) {
		t.Error("timestamp offsets do not depend on the tuple")
	}
}

// TestHalfOpenWindow: a challenge ACK for a half-open connection announces no window that the connection would shrink.
func TestHalfOpenWindow(t *testing.T) {
	l, now := newListener(tcp.ListenConfig{Conn: tcp.Config{RcvSpace: 1 << 20,
		RcvSpaceMax: 1 << 20}})
	tu := tuple(4000)
	var out tcp.Out
	l.Input(&tu, segment(fS, 1000, 0, mss(1460), ws(7)), now, &out)
	iss := out.Seq
	// The RST overtook 31 bytes.
	if v := l.Input(&tu, segment(fR, 1032, 0), now, &out); v != tcp.Reply || out.Flags != fA {
		t.Fatalf("verdict %v, sends %v", v, &out.Header)
	}
	right := out.Ack.Add(int(out.Window) << 5)
	if n := right.Diff(1001); n > 0xffff+1<<5 {
		t.Errorf("it promises %d bytes, the SYN-ACK 65535", n)
	}
	s := segment(fA, 1001, iss+1)
	s.Len = 31 // so that no rounding hides a byte
	var c tcp.Conn
	if l.Input(&tu, s, now, &out) != tcp.Ready || !l.Accept(&tu, s, &c, now) {
		t.Fatal("not accepted")
	}
	o := c.Input(s, now)
	c.Keep(o.R[0])
	c.Finish(now)
	c.SetRcvSpace(100, now)
	c.AckNow()
	for c.Poll(now, nil, &out) {
		if n := right.Diff(out.Ack.Add(int(out.Window) << 5)); n > 0 {
			t.Errorf("the right edge of the window moved back by %d", n)
		}
	}
}

// TestCookieHeadLost: the first segment after a cookie is lost for a while, but later ones arrive. These must not be
// answered with RST while the peer may still retransmit the first one.
func TestCookieHeadLost(t *testing.T) {
	l, now := newListener(tcp.ListenConfig{Cookies: tcp.CookiesAlways})
	tu := tuple(4000)
	var out tcp.Out
	l.Input(&tu, segment(fS, 1000, 0, mss(1460)), now, &out)
	iss := out.Seq
	behind := segment(fA, 1001+2880, iss+1)
	behind.Len = 1216
	for _, after := range []tick.Duration{9 * tick.Second, 21 * tick.Second} {
		if v := l.Input(&tu, behind, now.Add(after), &out); v != tcp.Drop {
			t.Errorf("after %d s: verdict %v, sends %v", after/tick.Second, v, &out.Header)
		}
	}
	head := segment(fA, 1001, iss+1)
	head.Len = 1220
	if v := l.Input(&tu, head, now.Add(45*tick.Second), &out); v != tcp.Ready {
		t.Errorf("the head: verdict %v", v)
	}
}
