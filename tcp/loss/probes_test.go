package loss

import (
	"testing"

	"xwarp/tcp/cc"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// probed returns a bench with three outstanding segments. The last was retransmitted as a tail loss probe.
func probed(t *testing.T) *bench {
	t.Helper()
	b := newBench(t, conf(RACK), 100*ms)
	b.send(0, 3)
	b.expire(ExpiredTLP)
	b.s.NoNewData(b.now)
	b.want("probe", b.resend(), []int{2})
	b.wait(50 * ms)
	return b
}

// TestProbeAnswers checks RFC 8985, 7.4.2: which acknowledgements end the episode of a retransmitted probe, and whether
// the probe counts as spurious.
//
//req:rfc8985-7.4-1 rfc8985-7.4-3
func TestProbeAnswers(t *testing.T) {
	for _, c := range []struct {
		name     string
		a        Ack
		sacks    []int
		on       bool
		spurious uint64
	}{
		{"a duplicate", Ack{}, nil, false, 1},
		{"with data", Ack{HasData: true}, nil, true, 0},
		{"another window", Ack{WindowChanged: true}, nil, true, 0},
		{"the probe came twice", Ack{}, []int{2}, false, 1},
		{"the same with data", Ack{HasData: true}, []int{2}, false, 1},
		{"another segment came twice", Ack{}, []int{1}, true, 0},
	} {
		b := probed(t)
		b.ack(2)
		b.want(c.name+": before the end", b.s.tlp.inFlight, true)
		b.ack(3)
		b.want(c.name+": at the end", b.s.tlp.inFlight, true)
		c.a.Ack = b.seg(3).Start
		var sacks []seq.Range
		for _, i := range c.sacks {
			sacks = append(sacks, b.seg(i))
		}
		b.want(c.name+": CWR", b.input(c.a, sacks...).CWR, false)
		b.want(c.name+": still one", b.s.tlp.inFlight, c.on)
		b.want(c.name+": spurious", b.s.count.ProbesSpurious, c.spurious)
		b.want(c.name+": repaired", b.s.count.ProbesRepaired, uint64(0))
	}
}

// TestProbeNotWanted: an acknowledgement of new bytes, cumulative or selective, between the expiry of the timer and the
// probe cancels the probe. Other acknowledgements do not.
//
//req:rfc8985-7.3-1
func TestProbeNotWanted(t *testing.T) {
	for _, c := range []struct {
		name  string
		ack   int
		sacks []int
		want  bool
	}{
		{"nothing", 0, nil, true},
		{"a segment", 1, nil, false},
		{"a segment behind a hole", 0, []int{1}, false},
		{"a segment twice", 0, []int{-1}, true},
	} {
		b := newBench(t, conf(RACK), 100*ms)
		b.send(0, 3)
		b.expire(ExpiredTLP)
		var sacks []seq.Range
		for _, i := range c.sacks {
			sacks = append(sacks, b.seg(i))
		}
		b.ack(c.ack, sacks...)
		b.want(c.name, b.s.tlp.want != tlpNone, c.want)
	}
}

// TestProbeRepairedAll checks RFC 8985, 7.4.2: a loss that a probe repaired is a sign of congestion, also if all later
// bytes are acknowledged with it, so that no acknowledgement is left to pace the reduction.
//
//req:rfc8985-7.4-2
func TestProbeRepairedAll(t *testing.T) {
	b := probed(t)
	b.send(3, 8)
	b.wait(100 * ms)
	b.want("CWR", b.ack(8).CWR, true)
	b.want("repaired", b.s.count.ProbesRepaired, uint64(1))
	b.want("state", b.s.State(), Open)
	b.want("ssthresh", b.s.Ssthresh(), 4000) // half of what was outstanding
	b.want("window", b.s.Cwnd(), 4000)
	b.want("probe", b.s.tlp.inFlight, false)
}

// TestProbeTimer checks RFC 8985, 7.2: the probe timer is two round trips, at least a millisecond, plus MaxAckDelay if
// one segment is outstanding. It is one second before the first sample, and never later than the retransmission timer.
//
//req:rfc8985-7.2-1 rfc8985-7.2-2 rfc8985-7.3-5 rfc8985-8-1
func TestProbeTimer(t *testing.T) {
	for _, c := range []struct {
		name string
		rtt  tick.Duration
		cfg  Config
		sent int
		want tick.Duration // 0: none
	}{
		{"two", 100 * ms, Config{}, 2, 200 * ms},
		{"one", 100 * ms, Config{}, 1, 200*ms + DefaultMaxAckDelay},
		{"one, a peer that waits for less", 100 * ms, Config{MaxAckDelay: ms}, 1, 201 * ms},
		{"short", 100 * tick.Microsecond, Config{}, 2, ms},
		{"half a millisecond", ms / 2, Config{}, 2, ms},
		{"more than that", ms/2 + 8, Config{}, 2, ms + 16},
		{"the RTO comes first", 10 * ms, Config{MinRTO: ms}, 1, 60 * ms},
		{"no round trip", 0, Config{InitialRTO: 3 * tick.Second}, 1, tick.Second},
		{"no round trip, the RTO comes first", 0, Config{InitialRTO: tick.Second - 1}, 2,
			tick.Second - 1},
		{"no probes", 100 * ms, Config{NoTLP: true}, 2, 0},
		{"RFC 6675", 100 * ms, Config{Mode: SACK}, 2, 0},
		{"NewReno", 100 * ms, Config{Mode: NoSACK}, 2, 0},
	} {
		c.cfg.CC = cc.Config{MSS: 1000, Algorithm: cc.Reno}
		b := newBench(t, c.cfg, 100*ms)
		b.s.Init(&c.cfg, b.base, b.now)
		if c.rtt > 0 {
			b.s.SetHandshakeRTT(c.rtt, false)
		}
		b.send(0, c.sent)
		want := tick.Never
		if c.want > 0 {
			want = b.now.Add(c.want)
		}
		b.want(c.name, b.s.timers.tlp, want)
	}
}

// TestProbeNotArmed checks RFC 8985, 7.2: the probe timer is off during recovery, while records are SACKed, while a
// probe is due or in flight, and after a probe until the next round trip sample.
//
//req:rfc8985-7.2-1 rfc8985-7.3-1
func TestProbeNotArmed(t *testing.T) {
	for name, f := range map[string]func(b *bench){
		"recovery":   func(b *bench) { b.s.state = Recovery },
		"loss":       func(b *bench) { b.s.state = Loss },
		"SACK":       func(b *bench) { b.s.q.list[sacked].n = 1 },
		"a probe":    func(b *bench) { b.s.tlp.inFlight = true },
		"one wanted": func(b *bench) { b.s.tlp.want = tlpLast },
		"no sample":  func(b *bench) { b.s.rtt.fresh = false },
	} {
		b := newBench(t, conf(RACK), 100*ms)
		b.send(0, 2)
		f(b)
		b.s.armTLP(b.now)
		b.want(name, b.s.timers.tlp, tick.Never)
	}
	for _, st := range []State{Open, Disorder, CWR} {
		b := newBench(t, conf(RACK), 100*ms)
		b.send(0, 2)
		b.s.state = st
		b.s.armTLP(b.now)
		b.want(st.String(), b.s.timers.tlp, b.now.Add(200*ms))
	}
}

// TestProportionalRate checks RFC 9937, 6: how many bytes beyond the pipe may be sent after one acknowledgement.
//
//req:rfc8985-9.3-3
func TestProportionalRate(t *testing.T) {
	const target = 10_000 // ssthresh
	const mark = "none for a mark"
	for _, c := range []struct {
		name  string
		p     prr // before the acknowledgement
		pipe  int
		acked int
		safe  bool
		want  int // beyond the pipe
	}{
		{"half of what arrived", prr{4000, 2000, 20_000}, 15_000, 2000, true, 1000},
		{"rounded up", prr{4000, 2000, 20_000}, 15_000, 2001, true, 1001},
		{"nothing yet", prr{1000, 1000, 20_000}, 15_000, 1000, true, 0},
		{"too much was sent", prr{1000, 3000, 20_000}, 15_000, 1000, true, 0},
		{"the fast retransmission", prr{0, 0, 20_000}, 15_000, 0, false, 1000},
		{mark, prr{0, 0, 20_000}, 15_000, 0, false, 0},
		{"a byte above", prr{4000, 2000, 20_000}, target + 1, 2000, false, 1000},
		{"at the target", prr{4000, 2000, 20_000}, target, 2000, true, 0},
		{"below: what arrived less what left", prr{6000, 2000, 20_000}, 3000, 1000, false, 5000},
		{"at least what just arrived", prr{6000, 9000, 20_000}, 3000, 1000, false, 1000},
		{"a segment more when safe", prr{6000, 9000, 20_000}, 3000, 1000, true, 2000},
		{"no more than the target", prr{6000, 2000, 20_000}, 7000, 1000, true, 3000},
	} {
		b := newBench(t, conf(RACK), 100*ms)
		b.s.cc.SetCwnd(2 * target)
		b.s.cc.OnLoss(2 * target)
		for left := c.pipe; left > 0; left -= 1000 {
			b.s.Sent(seq.Of(b.s.Nxt(), min(left, 1000)), Data, false, b.now)
		}
		b.s.prr, b.s.state = c.p, Recovery
		if c.name == mark {
			b.s.state = CWR
		}
		b.s.ev.newlyLost, b.s.ev.cwr = c.acked == 0 && c.name != mark, c.name == mark
		b.s.reduceWindow(c.acked, c.safe)
		b.want(c.name, b.s.Cwnd()-c.pipe, c.want)
		b.s.cc.SetCwnd(12_345)
		b.s.ev.newlyLost, b.s.ev.cwr = false, false
		b.s.reduceWindow(0, true)
		b.want(c.name+": of nothing", b.s.Cwnd(), 12_345)
	}
}

// TestPaceBurst: two segments, or the bytes of a millisecond at the pacing rate, may be sent ahead of the rate.
func TestPaceBurst(t *testing.T) {
	now := tick.Time(10 * tick.Second)
	for _, c := range []struct {
		next    tick.Duration // from now, before
		n, rate int
		want    tick.Duration
	}{
		{-tick.Second, 1000, 200_000, -5 * ms}, {-5 * ms, 1000, 200_000, 0},
		{-10 * ms, 1000, 200_000, -5 * ms}, {-10*ms - 1, 1000, 200_000, -5 * ms},
		{5 * ms, 1000, 200_000, 10 * ms}, {-tick.Second, 500, 1_000_000, -3 * ms / 2},
		{-tick.Second, 1000, 10_000_000, -ms + ms/10},
	} {
		p := pace{next: now.Add(c.next)}
		if p.onSent(c.n, c.rate, 1000, now); p.next != now.Add(c.want) {
			t.Errorf("%+v: %v", c, p.next.Sub(now))
		}
	}
}

// TestPacedFrom: the segments of the initial window are not paced, nor are connections with a round trip below a
// millisecond.
func TestPacedFrom(t *testing.T) {
	for _, c := range []struct {
		rtt   tick.Duration
		sent  int
		paced bool
	}{{ms, pacingFree, false}, {ms, pacingFree + 1, true}, {ms - 8, pacingFree + 1, false}} {
		cfg := conf(RACK)
		cfg.Pacing = true
		b := newBench(t, cfg, c.rtt)
		b.send(0, c.sent)
		if (b.s.pace.next != 0) != c.paced {
			t.Errorf("%+v: the next at %d", c, b.s.pace.next)
		}
		b.s.cc.SetCwnd(100_000)
		b.s.pace.next = b.now.Add(1)
		b.want("before it", b.s.Permit(b.now), 0)
		b.want("deadline", b.s.Deadline(), b.now.Add(1))
		b.want("too early", b.s.Expire(b.now), Expired(0))
		b.expire(ExpiredPacing)
		b.want("at it", b.s.Permit(b.now) > 0, true)
	}
}
