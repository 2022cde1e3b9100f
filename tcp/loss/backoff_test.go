package loss

import (
	"testing"

	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// TestBackoffEnds: an acknowledgement after a timeout gives no round trip sample if the timestamp clock is coarser than
// the round trip, or if it also covers retransmitted bytes. It ends the back-off all the same if its timestamp echo is
// from after the timeout, or if it covers bytes that were sent once, after the timeout.
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
		// RFC 7323, 4.1: the echo in an acknowledgement of nothing new is no measurement.
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

// TestBackoffFalls: the peer has neither SACK nor timestamps. It acknowledges bytes sent once after each timeout only
// when two holes before them are filled, which takes longer than the RTO without back-off. The back-off must fall all
// the same; otherwise each timeout would double it, whatever arrives in between. The peer keeps one segment behind a
// hole, and sends no acknowledgement of segments for which it has no room.
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
		b.ack(i + 5) // i+3 was retransmitted, i+4 was sent once, 33 ms ago
		b.send(i+6, i+9)
		if n := b.s.rtt.shift; n > 1 {
			t.Fatalf("RTO %d ms doubled %d times after %d segments arrived", b.s.rtt.rto/ms, n, i+5)
		}
	}
}

// TestRTO checks RFC 6298, 2 and 5; the names of the checks are the rules of section 5.
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

// TestDelayedAckPeer: even with a tiny MinRTO, the timer of a single outstanding segment leaves time for the peer's
// delayed acknowledgement.
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

// TestTimerOfRetransmission: the retransmission of the head restarts the timer with a new RTO. Retransmissions of later
// records leave the timer unchanged (RFC 6298, 5.1 starts it only when it does not run).
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

// TestHeadFirst: after a timeout the head is retransmitted first, also if other records were marked lost before it.
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

// TestPatientPeer: a peer delays each acknowledgement by the RTO or more, on a path too short for a round trip sample
// by timestamps. Timestamps or a DSACK show that the timeout was spurious, and the time since the transmission is then
// used as a sample (RFC 4015, 3.6). So only the first few segments are sent twice.
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
