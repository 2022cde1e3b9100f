package loss

import (
	"testing"

	"xwarp/tcp/cc"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// timeoutBench returns a bench with 10 outstanding segments. A timeout just occurred, and the head was retransmitted.
func timeoutBench(t *testing.T, cfg Config) *bench {
	cfg.NoTLP = true
	b := newBench(t, cfg, 100*ms)
	b.send(0, 10)
	b.expire(ExpiredRTO)
	b.want("head", b.resend(), []int{0})
	b.want("window", b.s.Cwnd(), 1000)
	b.want("back-off", b.s.Backoff(), 1)
	return b
}

// TestFRTO checks RFC 5682: the second acknowledgement after a timeout decides whether it was spurious.
func TestFRTO(t *testing.T) {
	for _, m := range []Mode{RACK, SACK, NoSACK} {
		b := timeoutBench(t, conf(m))
		b.ack(2) // late originals
		b.want("new segments", b.fresh(), 2)
		b.want("nothing again", b.resend(), []int(nil))
		r := b.ack(4)
		b.want("spurious", r.Undone, true)
		b.want("counted", b.s.count.UndoFRTO, uint64(1))
		b.want("lost", b.s.lostRecords(), 0)
		b.want("window", b.s.Cwnd() >= 10000, true)
		b.want("state", b.s.State(), Open)

		b = timeoutBench(t, conf(m)) // 0 and 3 were really lost
		b.ack(3)
		b.want("new segments", b.fresh(), 2)
		if m == NoSACK {
			b.ack(3)
		} else {
			b.ack(3, b.segs(10, 11))
		}
		b.want("real", b.s.frto.step, frtoOff)
		b.want("state", b.s.State(), Loss)
		if again := b.resend(); len(again) == 0 || again[0] != 3 {
			t.Errorf("sent again %v, want 3 first", again)
		}

		b = timeoutBench(t, conf(m)) // nothing new to send: conventional recovery
		b.ack(2)
		b.want("permit", b.s.Permit(b.now) > 0, true)
		b.want("there is something else", b.s.NoNewData(b.now), true)
		b.want("sent again", b.resend()[0], 2)
	}
}

// TestFRTOSmallerMSS: records that become too long are retransmitted at once, also while F-RTO waits for the
// acknowledgement of new segments.
func TestFRTOSmallerMSS(t *testing.T) {
	for _, m := range []Mode{RACK, SACK, NoSACK} {
		b := timeoutBench(t, conf(m))
		b.ack(2)
		b.want("new segments", b.fresh(), 2)
		b.s.SetMSS(400, b.now)
		if again := b.resend(); len(again) == 0 || again[0] != 2 {
			t.Errorf("%v: sent again: %v", m, again)
		}
	}
}

// TestUndoneTimer: after an undo the timer is an RTO without back-off, or off if nothing is in flight.
func TestUndoneTimer(t *testing.T) {
	b := timeoutBench(t, conf(RACK))
	b.ack(2)
	b.want("new segments", b.fresh(), 2)
	b.wait(100 * ms)
	b.want("spurious", b.ack(2, b.segs(3, 4)).Undone, true)
	b.want("time left", b.s.timers.rto.Sub(b.now), b.s.rtt.rto)

	cfg := conf(RACK)
	cfg.Clock = Clock{Tick: ms, Offset: 77}
	cfg.NoFRTO = true
	b = timeoutBench(t, cfg)
	old := cfg.Clock.TSVal(tick.Time(10 * tick.Second))
	b.want("spurious", b.input(Ack{Ack: b.s.Nxt(), HasTS: true, TSEcr: old}).Undone, true)
	b.want("idle", b.s.Deadline(), tick.Never)
}

// TestFRTOParts: the MSS falls below the length of the head, which is retransmitted in parts. The parts are one
// retransmission for F-RTO, so the acknowledgement of a part does not decide.
func TestFRTOParts(t *testing.T) {
	for _, m := range []Mode{RACK, SACK, NoSACK} {
		for _, late := range []bool{false, true} { // the first part is acknowledged before the others are sent
			cfg := conf(m)
			cfg.NoTLP = true
			b := newBench(t, cfg, 100*ms)
			b.send(0, 10)
			b.expire(ExpiredRTO)
			b.s.SetMSS(400, b.now)
			part := func(i int) seq.Range {
				r := seq.Of(b.base.Add(400*i), 400)
				r.End = seq.Min(r.End, b.seg(0).End)
				return r
			}
			for i := range 3 {
				b.s.Retransmitted(part(i), b.now)
				if late && i == 0 {
					b.wait(100 * ms)
					b.input(Ack{Ack: part(0).End})
				}
			}
			b.wait(100 * ms)
			for i := range 2 {
				if b.s.Una() == part(i).Start {
					b.input(Ack{Ack: part(i).End})
				}
			}
			b.ack(3) // the receiver had segments 1 and 2
			b.want("new segments", b.fresh() > 0, true)
			b.wait(100 * ms)
			b.ack(3) // a duplicate: the receiver got the new segments
			b.want("undone", b.s.count.UndoFRTO, uint64(0))
			b.want("state", b.s.State(), Loss)
			b.want("lost", b.s.lostRecords() > 0, true)
		}
	}
}

// TestFRTOTwoRecords: after a timeout the window has room for the retransmission of two short records. Their
// acknowledgements do not show that the timeout was spurious: the rest of the flight is lost.
func TestFRTOTwoRecords(t *testing.T) {
	for _, m := range []Mode{RACK, SACK, NoSACK} {
		cfg := conf(m)
		cfg.NoTLP = true
		b := newBench(t, cfg, 100*ms)
		b.size /= 2
		b.send(0, 10)
		b.expire(ExpiredRTO)
		b.want("sent again", b.resend(), []int{0, 1})
		b.wait(100 * ms)
		b.ack(1)
		b.ack(2)
		b.want("undone", b.s.count.UndoFRTO, uint64(0))
		b.want("state", b.s.State(), Loss)
		if again := b.resend(); len(again) == 0 || again[0] != 2 {
			t.Errorf("%v: sent again %v, want 2 first", m, again)
		}
	}
}

// TestFRTOOnce: F-RTO does not examine a timeout in the recovery of an earlier one (RFC 5682, 2.1, step 1). A receiver
// without buffer space does not acknowledge new segments. With F-RTO at every timeout, each timeout would retransmit
// only one old segment, with growing back-off.
func TestFRTOOnce(t *testing.T) {
	b := timeoutBench(t, conf(NoSACK))
	b.ack(1)
	b.want("new segments", b.fresh(), 2)
	b.expire(ExpiredRTO)
	b.want("the head", b.resend(), []int{1})
	b.ack(2)
	b.want("old segments, not new ones", b.resend(), []int{2, 3})
}

// TestEifel checks RFC 3522: the recovery is undone if the timestamp echo of the first acceptable acknowledgement is
// older than the retransmission, and the acknowledgement has no ECE flag.
func TestEifel(t *testing.T) {
	for _, ece := range []bool{false, true} {
		cfg := conf(RACK)
		cfg.Clock = Clock{Tick: ms, Offset: 77}
		cfg.NoFRTO = true
		b := timeoutBench(t, cfg)
		old := cfg.Clock.TSVal(tick.Time(10 * tick.Second))
		b.wait(50 * ms)
		r := b.input(Ack{Ack: b.seg(1).Start, HasTS: true, TSEcr: old, ECE: ece})
		b.want("undone", r.Undone, !ece) // RFC 4015, 3.4: never with ECN-Echo
	}
	cfg := conf(RACK)
	cfg.Clock = Clock{Tick: ms}
	b := newBench(t, cfg, 100*ms)
	b.send(0, 10)
	b.wait(100 * ms)
	b.ack(0, b.segs(1, 4))
	b.want("fast", b.resend(), []int{0})
	b.wait(5 * ms)
	r := b.input(Ack{Ack: b.seg(4).Start, HasTS: true,
		TSEcr: cfg.Clock.TSVal(b.now.Add(-105 * ms))})
	b.want("undone", r.Undone, true)
	b.want("window", b.s.Cwnd(), 10000)
	b.want("reordering", b.s.rack.reorderingSeen, true)
}

// TestDSACKUndo checks RFC 2883, 5.2: the recovery is undone once every retransmitted segment is reported as duplicate.
func TestDSACKUndo(t *testing.T) {
	b := newBench(t, conf(RACK), 100*ms)
	b.send(0, 10)
	b.wait(100 * ms)
	b.ack(0, b.segs(2, 5))
	b.wait(30 * ms)
	b.s.cc.SetCwnd(b.s.Pipe() + 2000)
	b.want("sent again", b.resend(), []int{0, 1})
	b.ack(5)
	b.wait(100 * ms)
	b.want("one of two", b.ack(5, b.seg(0)).Undone, false)
	b.want("both", b.ack(5, b.seg(1)).Undone, true)
	b.want("window", b.s.Cwnd(), 10000)
}

// TestDSACKUndoBesideProbe: a tail loss probe is sent before or after the recovery. A report that the probe was a
// duplicate does not count for a retransmission of the recovery: all of these must be reported, too.
func TestDSACKUndoBesideProbe(t *testing.T) {
	probe := func(b *bench, last int) {
		b.Helper()
		b.expire(ExpiredTLP)
		b.s.NoNewData(b.now)
		b.want("probe", b.resend(), []int{last})
	}
	recovery := func(b *bench) {
		b.Helper()
		b.ack(0, b.segs(2, 5))
		b.wait(30 * ms)
		b.s.cc.SetCwnd(b.s.Pipe() + 2000)
		b.want("sent again", b.resend(), []int{0, 1})
	}
	decide := func(b *bench, acked, last int) {
		b.Helper()
		b.want("the probe", b.ack(acked, b.seg(last), b.seg(last)).Undone, false)
		b.want("one of two", b.ack(acked, b.seg(0)).Undone, false)
		b.want("both", b.ack(acked, b.seg(1)).Undone, true)
	}
	b := newBench(t, conf(RACK), 100*ms)
	b.send(0, 10)
	probe(b, 9)
	recovery(b)
	decide(b, 5, 9)

	b = newBench(t, conf(RACK), 100*ms)
	b.send(0, 10)
	b.wait(100 * ms)
	recovery(b)
	b.ack(10)
	b.send(10, 12)
	b.wait(100 * ms)
	b.ack(11)
	probe(b, 11)
	decide(b, 11, 11)

	b = newBench(t, conf(RACK), 100*ms) // the probe is acknowledged before the recovery, which needs no report of it
	b.send(0, 3)
	probe(b, 2)
	b.ack(3)
	b.send(3, 10)
	b.wait(100 * ms)
	b.ack(3, b.segs(5, 8))
	b.wait(30 * ms)
	b.s.cc.SetCwnd(b.s.Pipe() + 2000)
	b.want("sent again", b.resend(), []int{3, 4})
	b.want("one of two", b.ack(8, b.seg(3)).Undone, false)
	b.want("both", b.ack(8, b.seg(4)).Undone, true)
}

// TestProbe checks RFC 8985, 7: spurious probes and probes that repair a loss.
//
//req:rfc8985-7.3-2 rfc8985-7.3-3
func TestProbe(t *testing.T) {
	probe := func() *bench {
		b := newBench(t, conf(RACK), 100*ms)
		b.send(0, 3)
		b.expire(ExpiredTLP)
		b.want("time", b.now.Sub(tick.Time(10*tick.Second)), 200*ms)
		b.want("there is something", b.s.NoNewData(b.now), true)
		tx, _ := b.s.Retransmit(b.now)
		b.want("probe", tx.TLP, true)
		b.want("the last", b.resend(), []int{2})
		b.want("one probe only", b.s.timers.tlp, tick.Never)
		return b
	}
	b := probe()
	b.wait(50 * ms)
	b.ack(3, b.seg(2)) // case 1: DSACK
	b.want("spurious", b.s.count.ProbesSpurious, uint64(1))
	b.want("window", b.s.Cwnd(), 10000)

	b = probe()
	b.wait(50 * ms)
	b.ack(3)
	b.ack(3) // case 2: a duplicate without SACK
	b.want("spurious", b.s.count.ProbesSpurious, uint64(1))

	b = probe()
	b.wait(50 * ms)
	b.ack(3)
	b.send(3, 5)
	b.wait(100 * ms)
	r := b.ack(4)
	b.want("repaired", b.s.count.ProbesRepaired, uint64(1))
	b.want("reaction", b.s.Ssthresh() < 10000 && r.CWR, true)

	b = newBench(t, conf(RACK), 100*ms) // new data is sent as probe if there is any
	b.send(0, 3)
	b.expire(ExpiredTLP)
	b.want("permit", b.s.Permit(b.now) > 0, true)
	b.send(3, 4)
	b.want("counted", b.s.count.Probes, uint64(1))
	b.wait(100 * ms)
	b.ack(3, b.seg(3))

	b = newBench(t, conf(RACK), 100*ms) // after FIN there is no new data
	b.s.Sent(seq.Of(b.s.Nxt(), 501), FIN, true, b.now)
	b.expire(ExpiredTLP)
	tx, ok := b.s.Retransmit(b.now)
	b.want("FIN again", ok && tx.TLP && tx.Kind == FIN && tx.Len() == 501, true)
	b.s.Retransmitted(tx.Range, b.now)
	b.want("FIN acknowledged", b.input(Ack{Ack: b.s.Nxt()}).FINAcked, true)
	b.want("idle", b.s.Deadline(), tick.Never)
}

// TestRenege: the acknowledgement stops at bytes that were SACKed, so the peer has discarded them (RFC 2018, 8).
//
//req:rfc6675-4-2 rfc6675-5.1-2
func TestRenege(t *testing.T) {
	b := newBench(t, conf(RACK), 100*ms)
	b.send(0, 10)
	b.wait(100 * ms)
	b.ack(0, b.segs(1, 10))
	b.want("head", b.resend(), []int{0})
	b.wait(100 * ms)
	r := b.ack(1)
	b.want("noticed", r.Reneged, true)
	b.expire(ExpiredRTO)
	b.want("forgotten", b.s.q.list[sacked].n, 0)
	var all []int
	for i := 2; i <= 11; i++ {
		all = append(all, b.resend()...)
		b.wait(100 * ms)
		b.ack(min(i, 10))
	}
	b.want("all again", all, []int{1, 2, 3, 4, 5, 6, 7, 8, 9})

	cfg := conf(RACK) // a second timeout drops the SACK information, too
	cfg.NoTLP = true
	b = newBench(t, cfg, 100*ms)
	b.send(0, 4)
	b.wait(100 * ms)
	b.ack(0, b.segs(2, 4))
	b.expire(ExpiredReorder)
	b.resend()
	b.expire(ExpiredRTO)
	b.want("kept once", b.s.q.list[sacked].n, 2)
	b.resend()
	b.expire(ExpiredRTO)
	b.want("forgotten", b.s.q.list[sacked].n, 0)
	at, ok := b.s.StalledSince()
	b.want("stalled", ok && at < b.now, true)
}

// TestPartial: acknowledgements that end inside a record, and records that are longer than the MSS after it fell.
func TestPartial(t *testing.T) {
	b := newBench(t, conf(RACK), 100*ms)
	if h, ok := b.s.Head(); ok {
		t.Errorf("with nothing in flight the head is %+v", h)
	}
	b.send(0, 4)
	b.wait(100 * ms)
	b.input(Ack{Ack: b.seg(1).Start.Add(300)})
	h, ok := b.s.Head()
	b.want("there is a head", ok, true)
	b.want("head", h.Range, seq.Range{Start: b.seg(1).Start.Add(300), End: b.seg(1).End})
	b.want("pipe", b.s.Pipe(), 2700)
	b.input(Ack{Ack: b.s.Una()}, seq.Range{Start: b.seg(2).Start, End: b.seg(2).End.Add(-1)})
	b.want("part of a record SACKed", b.s.q.list[sacked].n, 0)
	w := b.s.Cwnd()
	b.s.SetMSS(400, b.now)
	b.want("window", b.s.Cwnd(), w)
	b.want("no reaction", b.s.Ssthresh(), cc.Infinite)
	var parts []int
	for range 20 {
		tx, ok := b.s.Retransmit(b.now)
		if !ok {
			break
		}
		r := seq.Of(tx.Start, min(400, tx.Len()))
		parts = append(parts, r.Len())
		b.s.Retransmitted(r, b.now)
		if err := invariants(&b.s); err != nil {
			t.Fatal(err)
		}
	}
	b.want("parts", parts, []int{400, 300, 400, 400, 200, 400, 400, 200})
	b.wait(100 * ms)
	b.ack(4)
	b.want("state", b.s.State(), Open)
	b.want("window", b.s.Cwnd() >= w, true)
}

// TestTimeoutAppLimited: the application did not fill the window before the timeout. Afterwards the records to
// retransmit fill it, so it grows (RFC 5681, 3.1).
//
//req:rfc6675-5.1-4
func TestTimeoutAppLimited(t *testing.T) {
	cfg := conf(NoSACK)
	cfg.NoFRTO = true
	b := newBench(t, cfg, 50*ms)
	b.send(0, 4)
	b.expire(ExpiredRTO)
	b.want("head", b.resend(), []int{0})
	b.wait(50 * ms)
	b.ack(1)
	b.want("window", b.s.Cwnd(), 2000)
	b.want("slow start", b.resend(), []int{1, 2})
}

// TestSmallerMSSAlone: if no outstanding segment is larger than the new MSS, none is marked lost (RFC 8201, 4).
func TestSmallerMSSAlone(t *testing.T) {
	b := newBench(t, conf(RACK), 100*ms)
	b.size = 500
	b.send(0, 4)
	b.s.SetMSS(500, b.now)
	b.want("state", b.s.State(), Open)
	b.want("sent again", b.resend(), []int(nil))
}

// TestTinyWindow: with a window smaller than one record, one segment at a time is sent, and the transfer does not
// stall.
func TestTinyWindow(t *testing.T) {
	b := newBench(t, conf(RACK), 100*ms)
	b.s.cc.SetCwnd(1)
	b.want("one", b.fresh(), 1)
	b.want("permit", b.s.Permit(b.now), 0)
	b.wait(100 * ms)
	b.input(Ack{Ack: b.s.Nxt()})
	b.want("again", b.fresh() >= 1, true)
}

// TestEifelOldRetransmission: a segment is retransmitted in one recovery and acknowledged in the next. The echo is
// older than the first retransmission of the second recovery, but it is that of a retransmission, so no recovery was
// spurious.
func TestEifelOldRetransmission(t *testing.T) {
	cfg := conf(RACK)
	cfg.Clock = Clock{Tick: ms}
	cfg.CC.InitialWindow = 30
	b := newBench(t, cfg, 100*ms)
	b.send(0, 10)
	b.wait(100 * ms)
	echo := func() uint32 { return cfg.Clock.TSVal(b.now) }
	b.input(Ack{Ack: b.seg(0).Start}, b.segs(1, 4))
	b.send(10, 20)
	b.wait(10 * ms)
	b.s.cc.SetCwnd(30000)
	b.want("first", b.resend(), []int{0})
	first := echo()
	b.wait(50 * ms)
	b.input(Ack{Ack: b.seg(0).Start}, b.segs(1, 10), b.segs(11, 14)) // 10 is lost too
	b.s.cc.SetCwnd(30000)
	b.want("second", b.resend(), []int{10})
	b.wait(50 * ms)
	recoveries := b.s.count.FastRecoveries
	b.input(Ack{Ack: b.seg(10).Start, HasTS: true, TSEcr: first}, b.segs(11, 14))
	// The hole at 10 was made after the first reduction: a second recovery, with its own.
	b.want("recoveries", b.s.count.FastRecoveries, recoveries+1)
	again := echo() - 50
	b.wait(10 * ms)
	b.input(Ack{Ack: b.seg(10).Start, HasTS: true, TSEcr: first}, b.segs(15, 20), b.segs(11, 14))
	b.s.cc.SetCwnd(30000)
	b.want("third", b.resend(), []int{14})
	b.wait(10 * ms)
	b.want("undone", b.input(Ack{Ack: b.seg(14).Start, HasTS: true, TSEcr: again},
		b.segs(15, 20)).Undone, false)
}
