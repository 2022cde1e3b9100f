package loss

import (
	"testing"

	"xwarp/tcp/cc"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// TestMaxRecords: with tiny segments in a huge window, Permit allows at most maxRecords outstanding ones. It allows
// another one when a segment is acknowledged.
func TestMaxRecords(t *testing.T) {
	b := newBench(t, conf(RACK), 100*ms)
	b.s.cc.SetCwnd(cc.MaxWindow)
	one := func() { b.s.Sent(seq.Of(b.s.Nxt(), 1), Data, false, b.now) }
	for range maxRecords - 1 {
		one()
	}
	b.want("below it", b.s.Permit(b.now), cc.MaxWindow-maxRecords+1)
	one()
	b.want("records", b.s.q.len(), maxRecords)
	b.want("at it", b.s.Permit(b.now), 0)
	nxt := b.s.Nxt()
	one()
	b.want("not taken", b.s.Nxt(), nxt)
	b.s.Ack(&Ack{Ack: b.base.Add(1)}, b.now)
	b.want("one left", b.s.Permit(b.now) > 0, true)
	one()
	b.want("taken", b.s.Nxt(), nxt.Add(1))
}

// TestNotSent: Sent of a range that is not the next new segment changes nothing, nor does Retransmitted of one that
// Retransmit did not return.
func TestNotSent(t *testing.T) {
	b := newBench(t, conf(RACK), 100*ms)
	b.send(0, 4)
	for name, r := range map[string]seq.Range{
		"empty":           {Start: b.s.Nxt(), End: b.s.Nxt()},
		"inverted":        {Start: b.s.Nxt(), End: b.s.Nxt().Add(-1)},
		"behind the next": seq.Of(b.s.Nxt().Add(1), 10),
		"before the next": seq.Of(b.s.Nxt().Add(-1), 10),
	} {
		b.s.Sent(r, Data, false, b.now)
		b.want(name, b.s.count.Sent, uint64(4))
		b.want(name, b.s.Outstanding(), 4000)
	}
	b.s.Retransmitted(b.seg(0), b.now)
	b.want("nothing is lost", b.s.count.Retransmitted, uint64(0))
	b.wait(100 * ms)
	b.ack(0, b.segs(1, 4))
	for name, r := range map[string]seq.Range{
		"no byte":        seq.Of(b.seg(0).Start, 0),
		"not lost":       b.seg(1),
		"more than lost": b.segs(0, 2),
		"in front of it": seq.Of(b.base.Add(-1), 10),
	} {
		b.s.Retransmitted(r, b.now)
		b.want(name, b.s.count.Retransmitted, uint64(0))
	}
	b.want("lost", b.resend(), []int{0})
	b.want("counted", b.s.count.RetransmittedBytes, uint64(1000))
}

// TestPermit: a segment may exceed the window by less than its own length, but only while a reduction paces the window,
// or if nothing is in the network.
//
//req:rfc5681-3-1
func TestPermit(t *testing.T) {
	for _, c := range []struct {
		state            State
		window, inFlight int
		want             int
	}{
		{Open, 5000, 3000, 2000}, {Open, 5000, 4000, 1000}, {Open, 5000, 4001, 0},
		{Disorder, 5000, 4001, 0}, {Loss, 5000, 4001, 0},
		{Recovery, 5000, 4001, 1000}, {CWR, 5000, 4001, 1000},
		{Recovery, 5000, 4999, 1000}, {CWR, 5000, 4999, 1000},
		{Recovery, 5000, 5000, 0}, {CWR, 5000, 5000, 0}, {Recovery, 5000, 5001, 0},
		{Recovery, 5000, 3000, 2000}, {Open, 1000, 1, 0}, {Open, 1000, 0, 1000},
	} {
		b := newBench(t, conf(RACK), 100*ms)
		b.s.Sent(seq.Of(b.s.Nxt(), c.inFlight), Data, false, b.now)
		b.s.cc.SetCwnd(c.window)
		b.s.state = c.state
		if got := b.s.Permit(b.now); got != c.want {
			t.Errorf("%v, %d of %d in flight: %d, want %d", c.state, c.inFlight, c.window, got,
				c.want)
		}
	}
}

// TestTakeBack: TakeBack removes all traces of segments that were not transmitted: records, counts, and the state of a
// path MTU probe or tail loss probe among them.
func TestTakeBack(t *testing.T) {
	for _, c := range []struct {
		from             int // bytes from the first
		records          int
		mtuProbe, probed bool
	}{
		{6000, 6, true, true}, {5000, 5, true, true}, {4000, 4, false, true},
		{3000, 3, false, false}, {0, 0, false, false},
	} {
		b := newBench(t, conf(RACK), 100*ms)
		b.send(0, 3)
		b.expire(ExpiredTLP)
		b.send(3, 4)
		b.want("a probe", b.s.tlp.inFlight, true)
		b.send(4, 6)
		b.s.MTUProbe(b.seg(4))
		b.s.TakeBack(b.base.Add(c.from), b.now)
		if err := invariants(&b.s); err != nil {
			t.Error(err)
		}
		b.want("next", b.s.Nxt(), b.base.Add(c.from))
		b.want("records", b.s.q.len(), c.records)
		b.want("sent", b.s.count.Sent, uint64(c.records))
		b.want("out", b.s.prr.out, c.from)
		b.want("path MTU probe", !b.s.mtuProbe.Empty(), c.mtuProbe)
		b.want("tail loss probe", b.s.tlp.inFlight, c.probed)
		b.want("a timer", b.s.Deadline() != tick.Never, c.records > 0)
	}
}

// TestProbeOfNothing: if the only outstanding record is taken back when a probe is due, there is nothing to send, and
// no probe is due any more.
func TestProbeOfNothing(t *testing.T) {
	b := newBench(t, conf(RACK), 100*ms)
	b.send(0, 1)
	b.expire(ExpiredTLP)
	b.s.TakeBack(b.base, b.now)
	b.want("something to send again", b.s.NoNewData(b.now), false)
	_, ok := b.s.Retransmit(b.now)
	b.want("sent again", ok, false)
	b.want("wanted", b.s.tlp.want, tlpNone)
}

// TestPartEnds: the retransmission of a record in parts ends when the whole record is acknowledged, cumulatively or
// selectively.
func TestPartEnds(t *testing.T) {
	start := func() *bench {
		b := newBench(t, conf(RACK), 100*ms)
		b.send(0, 4)
		b.wait(100 * ms)
		b.s.SetMSS(400, b.now)
		b.s.Retransmitted(seq.Of(b.base, 400), b.now)
		b.want("part", b.s.partial.on, true)
		return b
	}
	b := start()
	for _, c := range []struct{ ack, next int }{{200, 400}, {400, 400}, {500, 500}, {999, 999}} {
		b.input(Ack{Ack: b.base.Add(c.ack)})
		tx, ok := b.s.Retransmit(b.now)
		b.want("the rest", ok, true)
		b.want("the rest", tx.Range, seq.Range{Start: b.base.Add(c.next), End: b.seg(0).End})
	}
	b.ack(1)
	b.want("acknowledged", b.s.partial.on, false)
	b = start()
	b.ack(0, b.seg(1))
	b.want("another one", b.s.partial.on, true)
	b.ack(0, b.segs(0, 2))
	b.want("acknowledged selectively", b.s.partial.on, false)
}

// TestPartOfSACKed: an acknowledgement ends inside a SACKed record. Its bytes do not count as delivered twice, and the
// sums above and aboveN, which invariants checks, no longer include the acknowledged part.
func TestPartOfSACKed(t *testing.T) {
	for _, m := range []Mode{RACK, SACK} {
		b := newBench(t, conf(m), 100*ms)
		b.send(0, 4)
		b.wait(100 * ms)
		b.ack(0, b.seg(1))
		for i, c := range []struct{ ack, delivered int }{{1500, 1000}, {1600, 0}, {2000, 0}} {
			r := b.input(Ack{Ack: b.base.Add(c.ack)})
			b.want("delivered", r.Delivered, c.delivered)
			b.want("partial", b.s.count.PartialAcks, uint64(min(i+1, 2)))
		}
		b = newBench(t, conf(m), 100*ms) // lossMark is beyond the record
		b.send(0, 8)
		b.wait(100 * ms)
		b.ack(0, b.segs(1, 8))
		b.input(Ack{Ack: b.base.Add(1500)})
		b.want("SACKed", b.s.q.list[sacked].bytes, 6500)
	}
}

// TestStateString checks the names of the states, which are Linux's.
func TestStateString(t *testing.T) {
	for st, want := range []string{"open", "disorder", "cwr", "recovery", "loss", "invalid"} {
		if got := State(st).String(); got != want {
			t.Errorf("%d: %q, want %q", st, got, want)
		}
	}
}
