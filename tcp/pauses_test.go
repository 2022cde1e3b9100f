package tcp_test

import (
	"testing"

	"xwarp/tcp"
	"xwarp/tcp/tick"
)

// TestPausesBetweenAnswers checks the minimum time between two challenge ACKs (RFC 5961, 7), and between two answers to
// probes.
//
//req:rfc5961-7-1
func TestPausesBetweenAnswers(t *testing.T) {
	for _, c := range []struct {
		name  string
		at    int // relative sequence number; 0: a probe; 100000: outside of the window
		pause tick.Duration
	}{{"challenge", 100_000, 500 * tick.Millisecond}, {"probe", 0, 100 * tick.Millisecond}} {
		p := newPeer(t, tcp.Config{})
		p.open(mss(1000))
		begun := p.now
		for _, step := range []struct {
			after tick.Duration
			want  int
		}{{0, 1}, {0, 0}, {c.pause - 1, 0}, {c.pause, 1}, {2*c.pause - 1, 0}, {2 * c.pause, 1}} {
			p.now = begun.Add(step.after)
			p.in(fA, c.at, 1, 0)
			if got := len(p.out()); got != step.want {
				t.Errorf("%s after %d us: %d answers, want %d", c.name,
					step.after/tick.Microsecond, got, step.want)
			}
		}
		if n := p.c.Counters(); n.ChallengeSuppressed+n.ProbesSuppressed != 3 {
			t.Errorf("%s: %+v", c.name, n)
		}
	}
}

// TestPAWSLimits: a timestamp is old if it is before TS.Recent, modulo 2^32. TS.Recent is valid for 24 days (RFC 7323,
// 5.2, 5.3 and 5.5).
//
//req:rfc7323-5.3-2 rfc7323-5.5-1
func TestPAWSLimits(t *testing.T) {
	const days24 = 24 * 24 * 60 * tick.Minute
	for _, c := range []struct {
		val  uint32
		idle tick.Duration
		ok   bool
	}{
		{100, 0, true}, {101, 0, true}, {99, 0, false}, {100 + 1<<31 - 1, 0, true},
		{100 + 1<<31, 0, false}, {99, days24, false}, {99, days24 + 1, true},
	} {
		for _, mode := range []tcp.ECNMode{tcp.ECNOff, tcp.ECNClassic} { // the two paths through Input
			p := newPeer(t, tcp.Config{ECN: mode})
			p.c.Connect(p.now)
			p.out()
			p.in(fSA, 0, 1, 0, mss(1000), ts(100, 0), ace(1))
			p.out()
			p.now = p.now.Add(c.idle)
			if o := p.in(fA, 1, 1, 10, ts(c.val, 0)); (o.N == 1) != c.ok {
				t.Errorf("ECN %d, timestamp %d after 100, %d ms later: taken %v", mode, c.val,
					c.idle/tick.Millisecond, o.N == 1)
			}
		}
	}
}
