package loss

import (
	"testing"

	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// TestBackoffEnds: the acknowledgement of a retransmission gives no round trip
// sample, since the timestamp clock is coarser than the round trip, or since it covers retransmitted bytes
// too. Its echo, or what was sent once after the timeout, ends the back-off.
func TestBackoffEnds(t *testing.T) {
	for _, ts := range []bool{true, false} {
		cfg := conf(NoSACK)
		cfg.NoTLP, cfg.NoFRTO = true, true
		if ts {
			cfg.Clock = Clock{Tick: ms}
		}
		b := newBench(t, cfg, ms/2)
		b.send(0, 3)
		b.expire(ExpiredRTO)
		b.resend()
		b.expire(ExpiredRTO)
		b.want("head", b.resend(), []int{0})
		b.want("backed off", b.s.rtt.shift, 2)
		if !ts {
			b.send(3, 4)
		}
		echo := b.s.cfg.Clock.TSVal(b.now)
		b.wait(ms / 2)
		// RFC 7323, 4.1: the echo of an acknowledgement of nothing new is no measurement.
		b.input(Ack{Ack: b.seg(0).Start, HasTS: ts, TSEcr: echo})
		b.want("back-off", b.s.rtt.shift, 2)
		if ts {
			b.input(Ack{Ack: b.seg(1).Start, HasTS: true, TSEcr: echo})
		} else {
			b.ack(4)
		}
		b.want("back-off", b.s.rtt.shift, 0)
	}
}

// TestBackoffFalls: without SACK and timestamps, what was sent once after each timeout is acknowledged, but
// only when two holes before it are filled, which takes longer than the RTO without back-off. The back-off
// falls all the same: else each timeout doubles it, whatever arrives in between. The peer keeps one segment
// behind a hole and says nothing about those that it has no room for.
func TestBackoffFalls(t *testing.T) {
	cfg := conf(NoSACK)
	cfg.MinRTO = 5 * ms
	b := newBench(t, cfg, 10*ms)
	b.send(0, 4)
	for i := 0; i < 50; i += 5 { // the peer has i+1, of i to i+3
		b.expire(ExpiredRTO)
		b.want("head", b.resend(), []int{i})
		b.wait(11 * ms)
		b.ack(i + 2)
		b.send(i+4, i+6) // the peer keeps i+4
		b.wait(11 * ms)
		b.ack(i + 2)
		again := b.resend()
		b.wait(11 * ms)
		b.ack(i + 3)
		b.want("the holes", append(again, b.resend()...), []int{i + 2, i + 3})
		b.wait(11 * ms)
		b.ack(i + 5) // i+3 was sent again, i+4 once, 33 ms ago
		b.send(i+6, i+9)
		if n := b.s.rtt.shift; n > 1 {
			t.Fatalf("RTO %d ms doubled %d times after %d segments arrived", b.s.rtt.rto/ms, n, i+5)
		}
	}
}

// TestRTO is RFC 6298, 2 and 5.
//
//req:rfc9293-MUST-18 rfc6298-2.2-1 rfc6298-3-1 rfc6298-3-2 rfc6298-5.1-1
func TestRTO(t *testing.T) {
	cfg := conf(NoSACK)
	cfg.MinRTO = 10 * ms
	b := newBench(t, cfg, 100*ms)
	b.want("first sample: SRTT + 4 * RTT/2", b.s.rtt.rto, 300*ms)
	b.s.Init(&cfg, b.base, b.now)
	b.want("before any", b.s.RTO(), tick.Second)
	b.s.SetHandshakeRTT(0, true)
	b.want("SYN lost", b.s.RTO(), 3*tick.Second)
	b.want("window after a lost SYN", b.s.Cwnd(), 1000)
	b.send(0, 1)
	b.want("5.1", b.s.Deadline(), b.now.Add(3*tick.Second))
	b.expire(ExpiredRTO)
	b.want("5.5", b.s.RTO(), 6*tick.Second)
	b.want("5.4", b.resend(), []int{0})
	b.wait(100 * ms)
	b.send(1, 2)
	b.ack(1) // Karn: no sample
	b.want("5.7, no sample", b.s.RTO(), 6*tick.Second)
	b.want("5.3", b.s.timers.rto, b.now.Add(6*tick.Second))
	b.want("stall is over", b.s.Backoff(), 0)
	b.expire(ExpiredRTO)
	b.resend()
	b.ack(2)
	b.want("5.2", b.s.Deadline(), tick.Never)
	b.s.Sent(seq.Of(b.s.Nxt(), 1000), Data, false, b.now)
	b.wait(40 * ms)
	b.input(Ack{Ack: b.s.Nxt()})
	b.want("sample ends the back-off", b.s.rtt.rto, 120*ms)
	for range 12 { // bounded by MaxRTO
		if b.s.Outstanding() == 0 {
			b.s.Sent(seq.Of(b.s.Nxt(), 1000), Data, false, b.now)
		}
		b.expire(ExpiredRTO)
		b.resend()
	}
	b.want("bound", b.s.RTO(), DefaultMaxRTO)
}

// TestDelayedAckPeer: with a tiny minimum, one outstanding segment still waits for the peer's delayed acknowledgement.
func TestDelayedAckPeer(t *testing.T) {
	cfg := conf(RACK)
	cfg.MinRTO = ms
	cfg.MaxAckDelay = 40 * ms
	b := newBench(t, cfg, 100*tick.Microsecond)
	for range 100 {
		b.s.Sent(seq.Of(b.s.Nxt(), 1000), Data, true, b.now)
		if d := b.s.Deadline().Sub(b.now); d < 40*ms {
			t.Fatalf("timer after %d ns", d)
		}
		b.wait(100 * tick.Microsecond)
		b.input(Ack{Ack: b.s.Nxt()})
	}
	first := b.s.Nxt()
	for range 3 {
		b.s.Sent(seq.Of(b.s.Nxt(), 1000), Data, false, b.now)
	}
	b.input(Ack{Ack: first.Add(1000)})
	b.want("two segments", b.s.timers.rto.Sub(b.now), b.s.rtt.rto)
	b.want("MinRTO and the round trip", b.s.rtt.rto < 2*ms, true)
}

// TestTimerOfRetransmission: the first bytes that are missing, sent again, get the time of a new RTO; what
// is sent again behind them leaves the timer as it is (RFC 6298, 5.1 starts it only when it does not run).
//
//req:rfc6298-5-1 rfc8985-8-1
func TestTimerOfRetransmission(t *testing.T) {
	b := newBench(t, conf(SACK), 100*ms)
	b.send(0, 10)
	b.wait(100 * ms)
	b.ack(0, b.segs(2, 6))
	b.s.cc.SetCwnd(20000)
	for i := range 2 {
		tx, _ := b.s.Retransmit(b.now)
		b.want("segment", tx.Range, b.seg(i))
		b.s.Retransmitted(tx.Range, b.now)
		b.want("time left", b.s.timers.rto.Sub(b.now), b.s.rtt.rto-tick.Duration(i)*10*ms)
		b.wait(10 * ms)
	}
}

// TestHeadFirst: after a timeout the head goes again first, also when others were taken for lost before it.
//
//req:rfc6298-5.4-1
func TestHeadFirst(t *testing.T) {
	for _, m := range []Mode{RACK, SACK, NoSACK} {
		cfg := conf(m)
		cfg.NoTLP = true
		b := newBench(t, cfg, 100*ms)
		b.send(0, 5)
		b.s.markLost(b.s.q.head + 2)
		b.expire(ExpiredRTO)
		b.want("sent again", b.resend()[:1], []int{0})
	}
}

// TestPatientPeer: a peer that delays each acknowledgement for as long as the timer waits, of a path so short that its
// timestamps say nothing of the round trip, has few segments sent twice: a timeout that was spurious tells how long it
// takes (RFC 4015, 3.6). Timestamps show it, or the report of a duplicate.
func TestPatientPeer(t *testing.T) {
	for _, late := range []tick.Duration{0, 10 * tick.Microsecond, 100 * ms, 300 * ms, 1000 * ms} {
		for _, m := range []Mode{RACK, NoSACK} {
			cfg := conf(m)
			cfg.NoTLP = true
			if m == NoSACK {
				cfg.Clock = Clock{Tick: ms}
			}
			b := newBench(t, cfg, 5*tick.Microsecond)
			delay := b.s.timeout() + late
			for i := range 20 {
				b.send(i, i+1)
				left, echo := b.now, cfg.Clock.TSVal(b.now)
				again := false
				for b.s.Deadline() <= left.Add(delay) {
					b.expire(ExpiredRTO)
					again = len(b.resend()) > 0
				}
				b.now = left.Add(delay)
				a := Ack{Ack: b.seg(i + 1).Start, HasTS: cfg.Clock.Tick > 0, TSEcr: echo}
				b.input(a)
				if b.wait(5 * tick.Microsecond); again && m == RACK {
					b.input(a, b.seg(i))
				}
			}
			if n := b.s.count.Timeouts; n == 0 || n > 4 || b.s.rtt.shift > 0 ||
				b.s.count.UndoEifel+b.s.count.UndoDSACK == 0 {
				t.Errorf("%v, acknowledgements %d ns later than the timer: %d timeouts for 20 "+
					"segments, %+v", m, late, n, b.s.count)
			}
		}
	}
}
