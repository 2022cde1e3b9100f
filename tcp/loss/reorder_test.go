package loss

import (
	"testing"

	"xwarp/tcp/tick"
)

// recovery sends five segments, of which the first is lost and the others are SACKed, and completes the recovery.
func (b *bench) recovery() {
	b.Helper()
	i := b.s.Nxt().Diff(b.base) / b.size
	b.send(i, i+5)
	b.wait(40 * ms)
	if b.ack(i, b.segs(i+1, i+5)); b.s.State() != Recovery {
		b.expire(ExpiredReorder)
	}
	b.want("lost", b.resend(), []int{i})
	b.wait(40 * ms)
	b.ack(i + 5)
	b.want("state", b.s.State(), Open)
}

// quarters returns the reordering window in quarters of a round trip of 40 ms.
func (b *bench) quarters() int { return int(b.s.reorderWindow() / (10 * ms)) }

// TestReorderPersist checks RFC 8985, 6.2 step 4: a reordering window that DSACKs widened lasts for 16 recoveries
// without another DSACK, after fast retransmit or timeout.
//
//req:rfc8985-4-4
func TestReorderPersist(t *testing.T) {
	cfg := conf(RACK)
	cfg.NoUndo, cfg.NoTLP = true, true
	b := newBench(t, cfg, 40*ms)
	b.recovery()
	b.want("at first", b.quarters(), 1)
	b.ack(5, b.seg(0))
	b.want("one DSACK", b.quarters(), 2)
	for i := range 10 {
		b.recovery()
		b.want("still", b.quarters(), 2)
		b.want("left", b.s.rack.persist, reorderPersist-1-i)
	}
	n := b.s.Nxt().Diff(b.base) / b.size
	b.ack(n, b.seg(n-5))
	b.want("another DSACK", b.quarters(), 3)
	for range reorderPersist - 2 {
		b.recovery()
	}
	b.send(n+70, n+71)
	b.expire(ExpiredRTO)
	b.want("head", b.resend(), []int{n + 70})
	b.wait(40 * ms)
	b.ack(n + 71)
	b.want("after 15", b.quarters(), 3)
	b.recovery()
	b.want("after 16", b.quarters(), 1)
}

// TestReorderRound checks RFC 8985, 6.2 step 4: a DSACK round ends when all bytes sent before its start are
// acknowledged. The reordering window reaches SRTT, and the multiple is at most maxReorderMult. If there are more
// DSACKs than retransmissions, the network duplicates segments, and the DSACKs do not count.
//
//req:rfc8985-3.3-4
func TestReorderRound(t *testing.T) {
	b := newBench(t, conf(RACK), 40*ms)
	b.recovery()
	b.s.count.Retransmitted = 3 // as many as there will be DSACKs
	b.send(5, 7)
	b.ack(5, b.seg(0))
	b.want("first", b.s.rack.mult, 2)
	b.wait(40 * ms)
	b.input(Ack{Ack: b.seg(7).Start.Add(-1)})
	b.input(Ack{Ack: b.seg(7).Start.Add(-1)}, b.seg(0))
	b.want("a byte before the end of the round", b.s.rack.mult, 2)
	b.ack(7)
	b.ack(7, b.seg(0))
	b.want("its end", b.s.rack.mult, 3)
	b.send(7, 8)
	b.wait(40 * ms)
	b.ack(8, b.seg(0))
	b.want("more reports than retransmissions", b.s.rack.mult, 3)

	b.s.count.Retransmitted = 1 << 20
	for i, want := range []tick.Duration{40 * ms, 40 * ms} {
		b.ack(8, b.seg(0))
		b.want("multiple", b.s.rack.mult, 4+i)
		b.want("SRTT is the bound", min(b.s.reorderWindow(), b.s.SRTT()), want)
	}
	for range maxReorderMult - 6 {
		b.ack(8, b.seg(0))
	}
	b.want("the last but one", b.s.rack.mult, maxReorderMult-1)
	for range 3 {
		b.ack(8, b.seg(0))
		b.want("the most", b.s.rack.mult, maxReorderMult)
	}
}

// TestReorderAtEnd checks RFC 8985, 6.2 step 4: a DSACK in the acknowledgement that ends a round belongs to the next
// round. A DSACK in the acknowledgement that ends a recovery makes it a recovery with DSACK.
//
//req:rfc8985-4-4
func TestReorderAtEnd(t *testing.T) {
	b := newBench(t, conf(RACK), 40*ms)
	b.recovery()
	b.s.count.Retransmitted = 2
	b.send(5, 7)
	b.ack(5, b.seg(0))
	b.want("a round begins", b.s.rack.mult, 2)
	b.wait(40 * ms)
	b.ack(7, b.seg(0))
	b.want("it ends", b.s.rack.mult, 3)

	cfg := conf(RACK)
	cfg.NoUndo = true
	b = newBench(t, cfg, 40*ms)
	b.send(0, 5)
	b.wait(40 * ms)
	if b.ack(0, b.segs(1, 5)); b.s.State() != Recovery {
		b.expire(ExpiredReorder)
	}
	b.resend()
	b.wait(40 * ms)
	b.ack(5, b.seg(0))
	b.want("recovery ends", b.s.State(), Open)
	b.want("recoveries left", b.s.rack.persist, reorderPersist)
}

// TestReorderWindowOfNone checks RFC 8985, 6.2 step 4: until reordering is seen, the reordering window is 0 in
// recovery, and once three segments are SACKed.
//
//req:rfc8985-3.3-1
func TestReorderWindowOfNone(t *testing.T) {
	for _, c := range []struct {
		state  State
		sacked int
		seen   bool
		want   int
	}{
		{Open, 0, false, 1}, {Disorder, dupThresh - 1, false, 1}, {Disorder, dupThresh, false, 0},
		{CWR, 0, false, 1}, {Recovery, 0, false, 0}, {Loss, 0, false, 0},
		{Recovery, 0, true, 1}, {Loss, 0, true, 1}, {Disorder, dupThresh, true, 1},
	} {
		b := newBench(t, conf(RACK), 40*ms)
		b.s.rtt.updateMin(40*ms, b.now)
		b.s.state, b.s.rack.reorderingSeen, b.s.q.list[sacked].n = c.state, c.seen, c.sacked
		if got := b.quarters(); got != c.want {
			t.Errorf("%v, %d segments, seen %v: %d quarters, want %d", c.state, c.sacked, c.seen,
				got, c.want)
		}
	}
}
