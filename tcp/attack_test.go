package tcp_test

import (
	"math/rand/v2"
	"testing"

	"xwarp/tcp"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

//req:rfc5961-3.2-1 rfc5961-3.2-2 rfc5961-3.2-3
func TestRST5961(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	p.open()
	p.in(fR, 0, 0, 0) // left of the window
	p.in(fR, 70000, 0, 0)
	p.want()
	p.in(fR, 2, 0, 0) // in the window, not at RCV.NXT: challenge ACK
	p.want(". 1 ack 1")
	p.in(fR, 3, 0, 0) // too soon after the other challenge ACK
	p.want()
	p.pass(500 * tick.Millisecond)
	p.in(fRA, 3, 1, 0)
	p.want(". 1 ack 1")
	p.state(tcp.Established)
	p.in(fR, 1, 0, 0)
	p.cause(tcp.CauseReset)
	p.want()
}

//req:rfc5961-4.2-1
func TestSYN5961(t *testing.T) {
	for _, at := range []int{-100000, 0, 1, 500, 70000} {
		for _, f := range []wire.Flags{fS, fSA, fS | fF} {
			p := newPeer(t, tcp.Config{})
			p.open()
			p.in(f, at, 1, 0)
			p.want(". 1 ack 1")
			p.state(tcp.Established)
		}
	}
}

//req:rfc9293-MAY-12 rfc5961-5.2-1
func TestACKRange5961(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	p.open(mss(1000), win(5000))
	p.src.sizes = []int{1000, 1000, 1000}
	p.out()
	p.in(fA, 1, 3001, 0, win(5000))
	for _, c := range []struct {
		ack int
		ok  bool
	}{{3002, false}, {3001, true}, {3001 - 5000, true}, {3001 - 5001, false}, {1 << 30, false},
		{-1 << 30, false}} {
		p.pass(tick.Second)
		p.out()
		o := p.in(fA, 1, c.ack, 10, win(5000), func(s *tcp.Segment) { s.Seq = p.c.RcvNxt() })
		if (o.N == 1) != c.ok {
			t.Errorf("ACK %d of 3001, window 5000: offered %v, want %v", c.ack, o.N == 1, c.ok)
		}
		if !c.ok {
			p.want(". 3001 ack " + itoa(p.c.RcvNxt().Diff(irs)))
		}
	}
	// A segment without ACK.
	if o := p.in(0, p.c.RcvNxt().Diff(irs), 0, 10); o.N != 0 {
		t.Error("a segment without ACK is offered")
	}
}

func itoa(n int) string {
	if n < 0 {
		return "-" + itoa(-n)
	}
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + itoa(n%10)
}

// TestBlindSegments sends 10 million random segments, as an attacker does who does not see the connection. The short
// run sends fewer. None may change the connection.
//
//req:rfc5961-8-1
func TestBlindSegments(t *testing.T) {
	n := 10_000_000
	if testing.Short() {
		n = 100_000
	}
	const seed = 1
	r := rand.New(rand.NewPCG(seed, 7))
	var b tcp.ChallengeBudget
	b.Init(100, 99)
	p := newPeer(t, tcp.Config{Budget: &b, RcvSpace: 1 << 16})
	p.open(mss(1000), sackOK(), ts(1<<31, 0))
	start := p.now
	sent, exact := 0, 0
	for i := range n {
		var s tcp.Segment
		s.Flags = wire.Flags(r.Uint32()) & wire.FlagMask
		s.Seq, s.Ack, s.Window = seq.Num(r.Uint32()), seq.Num(r.Uint32()), uint16(r.Uint32())
		if i%2 == 0 { // in the window
			s.Seq = p.c.RcvNxt().Add(r.IntN(1 << 16))
		}
		if i%8 == 0 {
			s.Seq = p.c.RcvNxt().Add(-r.IntN(1 << 16))
		}
		s.Len = r.IntN(3) * r.IntN(1400)
		if r.IntN(2) == 0 {
			s.Opt.Present = wire.HasTS
			s.Opt.TSVal, s.Opt.TSEcr = r.Uint32(), r.Uint32()
		}
		if s.Flags&fR != 0 && s.Seq == p.c.RcvNxt() || s.Ack.Diff(iss) < 70000 &&
			s.Ack.Diff(iss) > -70000 {
			exact++ // not a blind attack any more
			continue
		}
		if o := p.c.Input(&s, p.now); o.N != 0 {
			t.Fatalf("seed %d, segment %d: bytes of %v are offered", seed, i, &s.Header)
		}
		p.c.Finish(p.now)
		sent += len(p.out())
		if p.c.State() != tcp.Established || p.c.RcvNxt() != irs.Add(1) ||
			p.c.SndUna() != iss.Add(1) {
			t.Fatalf("seed %d, segment %d: %v moved the connection to %v", seed, i, &s.Header,
				p.c.State())
		}
		p.now = p.now.Add(tick.Microsecond)
	}
	seconds := float64(p.now.Sub(start)) / 1e9
	c := p.c.Counters()
	if float64(b.Used()) > 150*(seconds+1) || c.ChallengeAcks > uint64(2*seconds)+1 {
		t.Errorf("%d challenge ACKs in %.1f s", c.ChallengeAcks, seconds)
	}
	if sent > int(c.ChallengeAcks)+n/16 {
		t.Errorf("%d segments sent", sent)
	}
	t.Logf("%d segments, %d left out; %d answers, of those %d challenge ACKs, %d suppressed", n,
		exact, sent, c.ChallengeAcks, c.ChallengeSuppressed)
}

// TestSegmentSmack sends every other byte of a window, in the worst orders. The search and the insertion for each
// segment are bounded.
func TestSegmentSmack(t *testing.T) {
	for _, order := range []string{"up", "down", "random", "close"} {
		cost := func(n int) uint64 {
			p := newPeer(t, tcp.Config{RcvSpace: 1 << 20, RcvSpaceMax: 1 << 20})
			p.open(mss(1000), sackOK(), ws(4))
			r := rand.New(rand.NewPCG(3, 3))
			for i := range n {
				at := 3 + 2*i
				switch order {
				case "down":
					at = 3 + 2*(n-i)
				case "random":
					at = 3 + 2*r.IntN(n)
				case "close":
					if i >= n/2 {
						at = 2 * (i - n/2)
					}
				}
				s := tcp.Segment{Len: 1}
				s.Flags, s.Seq, s.Ack, s.Window = fA, irs.Add(at), iss.Add(1), 0xffff
				o := p.c.Input(&s, p.now)
				for _, x := range o.R[:o.N] {
					p.c.Keep(x)
				}
				p.c.Finish(p.now)
				p.out()
			}
			if h := p.c.Info(p.now).Holes; h > tcp.MaxHoles {
				t.Errorf("%s: %d pieces kept, limit %d", order, h, tcp.MaxHoles)
			}
			return p.c.HeldSteps()
		}
		for _, n := range []int{1000, 10_000, 40_000} {
			if got, most := cost(n), uint64(n)*(tcp.MaxHoles+200); got > most {
				t.Errorf("%s: %d segments cost %d steps, more than %d each", order, n, got,
					most/uint64(n))
			}
		}
	}
}

//req:rfc5961-7-1
func TestBudget(t *testing.T) {
	var b tcp.ChallengeBudget
	b.Init(100, 42)
	counts := map[int]bool{}
	now := tick.Time(0)
	for range 50 {
		k := 0
		for i := range 1000 {
			if b.Take(now.Add(tick.Duration(i))) {
				k++
			}
		}
		if k < 50 || k > 150 {
			t.Errorf("%d in one second, want 50 to 150", k)
		}
		counts[k] = true
		now = now.Add(tick.Second)
	}
	if len(counts) < 20 {
		t.Errorf("only %d different limits in 50 s: an attacker can count", len(counts))
	}
}

// TestProbesOfMany: 20,000 idle connections of a worker are probed at the same time, nine times, as keepalive does by
// default. Every probe is answered. The budget of challenge ACKs does not limit these answers, because a peer without
// an answer ends its connection.
func TestProbesOfMany(t *testing.T) {
	var b tcp.ChallengeBudget
	b.Init(1000, 7)
	peers := make([]*peer, 20_000)
	for i := range peers {
		peers[i] = newPeer(t, tcp.Config{Budget: &b})
		peers[i].open(mss(1000), win(0xffff))
	}
	for range 9 {
		silent := 0
		for _, p := range peers {
			p.now = p.now.Add(75 * tick.Second)
			p.in(fA, 0, 1, 0)
			if len(p.out()) != 1 {
				silent++
			}
		}
		if silent > 0 {
			t.Fatalf("%d of %d probes were not answered", silent, len(peers))
		}
	}
	if b.Used() > 0 {
		t.Errorf("the probes took %d of the shared budget", b.Used())
	}
}

// TestProbeFlood: forged probes cause a limited number of answers, take nothing from the shared budget, and are
// counted.
func TestProbeFlood(t *testing.T) {
	var b tcp.ChallengeBudget
	b.Init(1000, 7)
	p := newPeer(t, tcp.Config{Budget: &b})
	p.open(mss(1000), win(0xffff))
	sent := 0
	for range 100_000 { // in one second
		p.now = p.now.Add(10 * tick.Microsecond)
		p.in(fA, 0, 1, 0)
		sent += len(p.out())
	}
	n := p.c.Counters()
	if sent > 11 || n.ProbesAnswered != uint64(sent) ||
		n.ProbesSuppressed != 100_000-uint64(sent) || b.Used() > 0 {
		t.Errorf("%d answers in a second, %d of the shared budget, %+v", sent, b.Used(), n)
	}
}

// TestProbesBesideAttack: a probe is answered even after other connections have used up the shared budget.
func TestProbesBesideAttack(t *testing.T) {
	var b tcp.ChallengeBudget
	b.Init(1000, 7)
	p := newPeer(t, tcp.Config{Budget: &b})
	p.open(mss(1000), win(0xffff))
	for b.Take(p.now) {
	}
	p.in(fA, 0, 1, 0)
	p.want(". 1 ack 1")
}

// TestHalfOpenChallenges: segments for one half-open connection cannot use up the shared budget of challenge ACKs.
func TestHalfOpenChallenges(t *testing.T) {
	var b tcp.ChallengeBudget
	b.Init(1000, 7)
	l, now := newListener(tcp.ListenConfig{Conn: tcp.Config{Budget: &b}})
	tu := tuple(4000)
	var out tcp.Out
	l.Input(&tu, segment(fS, 1000, 0, mss(1460)), now, &out)
	for range 1000 {
		now = now.Add(tick.Millisecond)
		l.Input(&tu, segment(fA, 1<<30, out.Seq+1), now, &out)
	}
	if n := l.Counters().ChallengeSuppressed; b.Used() > 3 || n != 1000-b.Used() {
		t.Errorf("%d answers in a second, %d suppressed", b.Used(), n)
	}
}
