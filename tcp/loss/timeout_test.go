package loss

import (
	"testing"

	"xwarp/tcp/cc"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// TestFRTOSteps checks RFC 5682, 2.1 and 3.1: which acknowledgements after a timeout show that it was spurious. Ten
// segments are outstanding.
func TestFRTOSteps(t *testing.T) {
	for _, c := range []struct {
		name   string
		first  int       // segments acknowledged before new segments are sent
		second int       // segments acknowledged after that
		sack   seq.Range // segments SACKed with the second acknowledgement
		undone bool
		window int // in segments, unless undone
	}{
		{"advances", 2, 3, seq.Range{}, true, 0},
		{"the last original comes", 2, 2, seq.Range{Start: 9, End: 10}, true, 0},
		{"a new segment comes", 2, 2, seq.Range{Start: 10, End: 11}, false, 3},
	} {
		b := timeoutBench(t, conf(RACK))
		b.wait(100 * ms)
		b.ack(c.first)
		b.want(c.name+": new segments", b.fresh(), frtoSegments)
		b.want(c.name+": waits", b.s.frto.step, frtoWait)
		var sacks []seq.Range
		if !c.sack.Empty() {
			sacks = append(sacks, b.segs(int(c.sack.Start), int(c.sack.End)))
		}
		b.want(c.name, b.ack(c.second, sacks...).Undone, c.undone)
		b.want(c.name+": over", b.s.frto.step, frtoOff)
		if !c.undone {
			b.want(c.name+": window", b.s.Cwnd(), c.window*1000)
			b.want(c.name+": state", b.s.State(), Loss)
		}
	}
	for _, c := range []struct {
		name string
		a    Ack
		ack  int // bytes
		step frtoStep
	}{
		{"a duplicate", Ack{}, 0, frtoOff}, {"with data", Ack{HasData: true}, 0, frtoFirst},
		{"another window", Ack{WindowChanged: true}, 0, frtoFirst},
		{"part of the head", Ack{}, 999, frtoFirst}, {"the head", Ack{}, 1000, frtoNew},
		{"all but a byte", Ack{}, 9999, frtoNew}, {"all", Ack{}, 10_000, frtoOff},
	} {
		b := timeoutBench(t, conf(NoSACK))
		b.want(c.name+": begin", b.s.frto.step, frtoFirst)
		c.a.Ack = b.base.Add(c.ack)
		b.want(c.name, b.input(c.a).Undone, false)
		b.want(c.name+": step", b.s.frto.step, c.step)
	}
}

// TestFRTOBegins checks RFC 5682, 2.1: F-RTO needs new segments, so it does not begin after a FIN. An acknowledgement
// that arrives before the retransmission of the head shows by itself that the timeout was spurious.
func TestFRTOBegins(t *testing.T) {
	for _, fin := range []bool{false, true} {
		for _, off := range []bool{false, true} {
			cfg := conf(RACK)
			cfg.NoTLP, cfg.NoFRTO = true, off
			b := newBench(t, cfg, 100*ms)
			b.send(0, 9)
			k := Data
			if fin {
				k = FIN
			}
			b.s.Sent(b.seg(9), k, true, b.now)
			b.expire(ExpiredRTO)
			b.want("begins", b.s.frto.step == frtoHead, !fin && !off)
			b.want("a duplicate", b.ack(0).Undone, false)
			b.want("the head, not sent again", b.ack(1).Undone, true)
			b.want("by F-RTO", b.s.count.UndoFRTO == 1, !fin && !off)
		}
	}
}

// TestUndoEifelEdge checks RFC 3522: an echo with the same timestamp as the first retransmission is not older than it.
func TestUndoEifelEdge(t *testing.T) {
	for _, c := range []struct {
		name   string
		echo   int // relative to the timestamp of the retransmission
		ts     bool
		ack    int
		undone bool
	}{
		{"one before", -1, true, 1, true}, {"the same", 0, true, 1, false},
		{"one after", 1, true, 1, false}, {"no timestamps", -1, false, 1, false},
		{"nothing is acknowledged", -1, true, 0, false},
	} {
		cfg := conf(RACK)
		cfg.Clock, cfg.NoFRTO = Clock{Tick: ms}, true
		b := timeoutBench(t, cfg)
		echo := cfg.Clock.TSVal(b.now) + uint32(c.echo)
		b.wait(50 * ms)
		r := b.input(Ack{Ack: b.seg(c.ack).Start, HasTS: c.ts, TSEcr: echo})
		b.want(c.name, r.Undone, c.undone)
	}
}

// TestDSACKUndoMarker checks RFC 2883, 5.2: a duplicate that ends at or before Una at the start of recovery is not one
// of the retransmissions. One that ends a byte later is.
func TestDSACKUndoMarker(t *testing.T) {
	for _, more := range []bool{false, true} {
		b := newBench(t, conf(RACK), 100*ms)
		b.send(0, 10)
		b.wait(100 * ms)
		b.ack(5)
		b.ack(5, b.segs(6, 10))
		b.want("lost", b.resend(), []int{5})
		b.wait(100 * ms)
		b.ack(10)
		dup := b.seg(4)
		if more {
			dup.End = dup.End.Add(1)
		}
		b.want("before the marker", b.input(Ack{Ack: b.s.Una()}, dup).Undone, more)
		b.want("the bytes", b.ack(10, b.seg(5)).Undone, !more)
	}
}

// TestTimeoutBounds checks RFC 6298, 2.1, 2.4, 2.5 and 5.7: the bounds of the first RTO, and of the RTO after a lost
// SYN.
//
//req:rfc6298-2.1-1 rfc6298-2.5-1 rfc6298-4-1 rfc6298-5.7-1
func TestTimeoutBounds(t *testing.T) {
	const s = tick.Second
	for _, c := range []struct {
		initial, low, high tick.Duration
		want, lostSYN      tick.Duration
	}{
		{0, 0, 0, s, 3 * s}, {-1, -1, -1, s, 3 * s}, {100 * ms, 0, 0, DefaultMinRTO, 3 * s},
		{100 * ms, 50 * ms, 0, 100 * ms, 3 * s}, {5 * s, 0, 0, 5 * s, 5 * s},
		{5 * s, 0, 4 * s, 4 * s, 4 * s}, {s, 0, 2 * s, s, 2 * s}, {s, 4 * s, 2 * s, 4 * s, 4 * s},
		{s, 0, 3*s + 1, s, 3 * s},
	} {
		cfg := conf(RACK)
		cfg.InitialRTO, cfg.MinRTO, cfg.MaxRTO = c.initial, c.low, c.high
		b := newBench(t, cfg, 100*ms)
		b.s.Init(&cfg, b.base, b.now)
		b.want("at first", b.s.RTO(), c.want)
		b.s.SetHandshakeRTT(0, true)
		b.want("after a lost SYN", b.s.RTO(), c.lostSYN)
		b.want("without back-off", b.s.rtt.rto, c.lostSYN)
	}
}

// TestBackoffBounds checks RFC 6298, 5.5: each timeout doubles the next one, up to MaxRTO, and not more than maxBackoff
// times.
//
//req:rfc6298-2.5-1 rfc6298-5.5-1
func TestBackoffBounds(t *testing.T) {
	for _, high := range []tick.Duration{20 * ms, 3600 * tick.Second} {
		cfg := conf(NoSACK)
		cfg.InitialRTO, cfg.MinRTO, cfg.MaxRTO = ms, ms, high
		b := newBench(t, cfg, 100*ms)
		b.s.Init(&cfg, b.base, b.now)
		b.send(0, 2)
		for i := range maxBackoff + 3 {
			b.want("RTO", b.s.RTO(), min(ms<<min(i, maxBackoff), high))
			b.want("timer", b.s.Deadline().Sub(b.now), b.s.RTO())
			b.want("too early", b.s.Expire(b.s.Deadline()-1), Expired(0))
			b.expire(ExpiredRTO)
			b.want("retries", b.s.Backoff(), i+1)
		}
		b.want("timeouts", b.s.count.Timeouts, uint64(maxBackoff+3))
	}
}

// TestOverdue: Overdue returns the RTO without back-off and the time at which the head was last sent, but only while
// there is a back-off.
func TestOverdue(t *testing.T) {
	cfg := conf(NoSACK)
	cfg.NoFRTO = true
	b := newBench(t, cfg, 100*ms)
	none := func(what string) {
		b.Helper()
		if rto, sent, ok := b.s.Overdue(); ok || rto != 0 || sent != 0 {
			b.Errorf("%s: %v, %d", what, rto, sent)
		}
	}
	none("idle")
	b.send(0, 2)
	none("before the timeout")
	b.expire(ExpiredRTO)
	b.resend()
	rto, sent, ok := b.s.Overdue()
	if !ok || rto != 300*ms || sent != b.now {
		t.Errorf("%v, %d, %v", rto, sent, ok)
	}
	b.wait(100 * ms)
	b.ack(2)
	none("all is acknowledged")
}

// TestEstimator checks RFC 6298, 2.2 and 2.3, with alpha 1/8 and beta 1/4: 100 ms and then 180 ms make SRTT 110 ms and
// RTTVAR 57.5 ms. MinRTO is the minimum of four times RTTVAR.
//
//req:rfc6298-2.2-1 rfc6298-2.3-1 rfc6298-2.3-2 rfc6298-4-1 rfc7323-4.2-1
func TestEstimator(t *testing.T) {
	for _, c := range []struct {
		low, high, rto tick.Duration
	}{
		{ms, 0, 340 * ms}, {230 * ms, 0, 340 * ms}, {231 * ms, 0, 341 * ms},
		{ms, 340 * ms, 340 * ms}, {ms, 339 * ms, 339 * ms},
	} {
		cfg := conf(RACK)
		cfg.MinRTO, cfg.MaxRTO = c.low, c.high
		b := newBench(t, cfg, 100*ms)
		b.want("SRTT", b.s.SRTT(), 100*ms)
		b.s.rtt.sample(180*ms, b.s.una, b.s.nxt)
		b.want("SRTT", b.s.SRTT(), 110*ms)
		b.want("4 RTTVAR", b.s.rtt.var4, max(230*ms, c.low))
		b.want("RTO", b.s.RTO(), c.rto)
	}
	// RFC 4015, step 11: after a spurious timeout, the first sample of new data may raise the estimate.
	for _, c := range []struct {
		una     seq.Num
		rtt     tick.Duration
		srtt    tick.Duration
		settled bool
	}{{1000, 500 * ms, 150 * ms, false}, {1001, 500 * ms, 500 * ms, true}, {1001, ms, 0, true}} {
		b := newBench(t, conf(RACK), 100*ms)
		b.s.rtt.spurious, b.s.rtt.newData = true, 1000
		b.s.rtt.sample(c.rtt, c.una, 2000)
		if c.srtt > 0 {
			b.want("SRTT", b.s.SRTT(), c.srtt)
		}
		b.want("settled", !b.s.rtt.spurious, c.settled)
	}
}

// TestLeastRoundTrip: a sample counts for the least round trip until the end of the next half of the window.
//
//req:rfc8985-6.2-1
func TestLeastRoundTrip(t *testing.T) {
	var e estimator
	for _, c := range []struct {
		at        tick.Duration
		rtt, want tick.Duration
	}{
		{0, 10 * ms, 10 * ms}, {1, 20 * ms, 10 * ms}, {minRTTHalf, 20 * ms, 10 * ms},
		{minRTTHalf + 1, 20 * ms, 10 * ms}, {2*minRTTHalf + 1, 15 * ms, 10 * ms},
		{2*minRTTHalf + 2, 30 * ms, 15 * ms}, {2*minRTTHalf + 3, 5 * ms, 5 * ms},
		{2*minRTTHalf + 3, -1, 1},
	} {
		e.updateMin(c.rtt, tick.Time(c.at))
		if got := e.minRTT(); got != c.want {
			t.Errorf("%v after %v: %v, want %v", c.rtt, c.at, got, c.want)
		}
	}
}

// TestRenegeWait: if the first record is SACKed but not acknowledged, the sender waits for half a round trip, at least
// 10 ms. Its acknowledgement ends the wait.
//
//req:rfc6675-5.1-2
func TestRenegeWait(t *testing.T) {
	for _, c := range []struct{ rtt, want tick.Duration }{{100 * ms, 50 * ms}, {20 * ms, 10 * ms},
		{10 * ms, 10 * ms}, {24 * ms, 12 * ms}} {
		b := newBench(t, conf(RACK), c.rtt)
		b.send(0, 3)
		b.ack(0, b.segs(1, 3))
		b.s.rtt.s8 = c.rtt << 3
		b.s.timers.renege = tick.Never
		b.s.una = b.seg(1).Start
		b.s.q.pop()
		b.s.lossMark = b.s.q.head
		b.s.checkRenege(b.now)
		b.want("wait", b.s.timers.renege.Sub(b.now), c.want)
		b.wait(ms)
		b.s.checkRenege(b.now)
		b.want("once", b.s.timers.renege.Sub(b.now), c.want-ms)
		b.ack(3)
		b.want("over", b.s.timers.renege, tick.Never)
	}
}

// TestIdleRestart checks RFC 5681, 4.1: if nothing is outstanding and nothing was sent for more than an RTO, the window
// is reduced, once.
//
//req:rfc5681-4.1-1
func TestIdleRestart(t *testing.T) {
	for _, c := range []struct {
		idle tick.Duration // beyond the RTO
		want int
	}{{-1, 40_000}, {0, 40_000}, {1, 20_000}} {
		b := newBench(t, conf(RACK), 100*ms)
		b.s.cc.SetCwnd(40_000)
		b.wait(b.s.RTO() + c.idle)
		b.want("window", b.s.Permit(b.now), c.want)
		b.want("asked again", b.s.Permit(b.now), c.want)
	}
}

// TestWindowLimited checks RFC 7661, 4.3: the window grows only if it had no room for a further segment.
func TestWindowLimited(t *testing.T) {
	for _, last := range []int{1, 1000} {
		b := newBench(t, conf(RACK), 100*ms)
		b.send(0, 8)
		b.s.Sent(seq.Of(b.s.Nxt(), last), Data, false, b.now)
		b.want("limited, with a segment's room", b.s.round.limited, false)
		b.s.Sent(seq.Of(b.s.Nxt(), 1), Data, true, b.now)
		b.want("limited", b.s.round.limited, last == 1000)
		b.want("by the application", b.s.round.appLimited, last < 1000)
		b.wait(100 * ms)
		b.input(Ack{Ack: b.s.Nxt()})
		b.want("grew", b.s.Cwnd() > 10_000, last == 1000)
	}
}

// TestMarks: an echo, or a positive number of marked bytes of AccECN, reduces the window, but not during another
// reduction or recovery. The window does not grow with the same acknowledgement.
func TestMarks(t *testing.T) {
	for _, c := range []struct {
		name  string
		a     Ack
		state State
		want  bool
	}{
		{"nothing", Ack{}, Open, false}, {"echo", Ack{ECE: true}, Open, true},
		{"a byte", Ack{CEBytes: 1}, Open, true},
		{"less than none", Ack{CEBytes: -1}, Open, false},
		{"disorder", Ack{ECE: true}, Disorder, true}, {"a reduction", Ack{ECE: true}, CWR, false},
		{"recovery", Ack{ECE: true}, Recovery, false}, {"loss", Ack{ECE: true}, Loss, false},
	} {
		b := newBench(t, Config{CC: cc.Config{MSS: 1000, Algorithm: cc.Reno}}, 100*ms)
		b.send(0, 10)
		b.wait(100 * ms)
		b.s.state = c.state
		if c.state >= CWR {
			b.s.recover = b.s.nxt
			b.s.prr.flight = 1
		}
		c.a.Ack = b.seg(1).Start
		b.want(c.name, b.input(c.a).CWR, c.want)
		if c.want {
			b.want(c.name+": window grew", b.s.Cwnd() > 10_000, false)
			b.want(c.name+": ssthresh", b.s.Ssthresh(), 8000) // RFC 8511, 3.1
			b.want(c.name+": state", b.s.State(), CWR)
		}
	}
}

// TestMarkOfNextWindow checks RFC 3168, 6.1.2: an echo reduces the window again only once bytes are acknowledged that
// were sent after the last reduction.
func TestMarkOfNextWindow(t *testing.T) {
	for _, c := range []struct {
		ack  int // bytes
		want bool
	}{{9999, false}, {10_000, false}, {10_001, true}} {
		b := newBench(t, conf(RACK), 100*ms)
		b.send(0, 10)
		b.wait(100 * ms)
		b.want("the first", b.input(Ack{Ack: b.seg(1).Start, ECE: true}).CWR, true)
		b.send(10, 12)
		b.wait(100 * ms)
		b.want("another", b.input(Ack{Ack: b.base.Add(c.ack), ECE: true}).CWR, c.want)
	}
}
