package loss

import (
	"math"

	"xwarp/tcp/cc"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// event is the effect of one acknowledgement on the scoreboard.
type event struct {
	now         tick.Time
	outstanding int  // bytes between Una and Nxt before this acknowledgement
	unreported  int  // bytes of outstanding not known to have arrived
	acked       int  // bytes that Una moved over
	records     int  // records that the cumulative acknowledgement covers
	delivered   int  // bytes newly known to have arrived
	newSACK     int  // bytes of delivered reported by selective acknowledgement
	dup         bool // a duplicate acknowledgement in RFC 5681's sense
	dsack       bool
	widened     bool // the DSACK made the reordering window wider
	original    bool // a record arrived that was sent once, before the last timeout
	resent      bool // the cumulative acknowledgement covers a retransmitted record
	// Of the records that arrived and were sent only once: oldest is when the first one that was acknowledged
	// cumulatively was sent, newest is the latest time at which any of them was sent.
	oldest      tick.Time
	newest      tick.Time
	haveOldest  bool
	haveNewest  bool
	oldSACK     tick.Time // like oldest, for the first one acknowledged selectively
	haveOldSACK bool
	edge        edge
	rack        candidate
	newlyLost   bool
	lostAgain   bool // a retransmission sent after the last reduction was lost
	exited      bool // a paced reduction ended
	undone      bool
	cwr         bool
}

// edge is the state of the first record that the cumulative acknowledgement covers.
type edge uint8

const (
	edgeNone   edge = iota
	edgeUnsent      // marked lost, not retransmitted yet
	edgeResent
)

// Ack processes an acknowledgement. One beyond Nxt is ignored; of one before Una only the SACK blocks and ECE count.
func (s *Sender) Ack(a *Ack, now tick.Time) (res Result) {
	if s.nxt.Less(a.Ack) {
		return res
	}
	s.beginEvent(now)
	ev := &s.ev
	s.readDSACK(a)
	if s.una.Less(a.Ack) {
		res.FINAcked = s.processAck(a)
	}
	if ev.dsack {
		ev.widened = s.rack.onDSACK(s)
	}
	if s.mode != NoSACK && a.NSACK > 0 {
		s.processSACK(a)
	}
	s.countDup(a)
	res.RTT = s.sampleRTT(a, now)
	newRound := s.endRound(now)
	if ev.acked > 0 {
		s.restartTimeout(now)
	}
	s.rack.update(ev.rack, now)
	s.checkTLP(a, now)
	s.checkSpurious(a, now)
	s.checkExit()
	s.checkRenege(now)
	s.detect(now)
	if ev.newlyLost {
		s.enterRecovery(now)
	}
	s.updateWindow(a, res.RTT, newRound, now)
	s.armTimers(now)
	res.NewlyAcked, res.Delivered, res.DupAck, res.DSACK = ev.acked, ev.delivered, ev.dup, ev.dsack
	res.CWR, res.Undone, res.Reneged = ev.cwr, ev.undone, s.timers.renege != tick.Never
	return res
}

func (s *Sender) beginEvent(now tick.Time) {
	n := s.Outstanding()
	s.ev = event{now: now, outstanding: n,
		unreported: max(0, n-s.q.list[sacked].bytes-s.dupBytes())}
}

// processAck removes the records that a.Ack covers and reports whether a FIN was among them.
func (s *Sender) processAck(a *Ack) (fin bool) {
	ev := &s.ev
	ev.acked = a.Ack.Diff(s.una)
	if s.fack == s.una && s.frto.step == frtoOff {
		s.inOrder(a.Ack)
	}
	for s.q.len() > 0 {
		r := s.q.at(s.q.head)
		if a.Ack.Less(r.end()) {
			if n := a.Ack.Diff(r.start); n > 0 {
				s.count.PartialAcks++
				if r.place != sacked {
					ev.delivered += n
				} else if int32(s.q.head-s.lossMark) >= 0 {
					s.above -= n
				}
				s.q.trim(n)
			}
			break
		}
		if ev.records == 0 {
			switch {
			case r.retransmitted():
				ev.edge = edgeResent
			case r.place == lost:
				ev.edge = edgeUnsent
			}
		}
		if r.place == sacked {
			s.forgetAboveMark(s.q.head, r)
		} else {
			s.onArrived(r, a, true)
		}
		fin = fin || r.kind == FIN
		ev.records++
		s.q.pop()
	}
	if int32(s.q.head-s.lossMark) > 0 {
		s.lossMark = s.q.head
	}
	if s.partial.on && int32(s.q.head-s.partial.id) > 0 {
		s.partial.on = false
	}
	s.una = a.Ack
	if s.mtuProbe.End.LessEq(s.una) {
		s.mtuProbe = seq.Range{}
	}
	s.fack = seq.Max(s.fack, s.una)
	return fin
}

// inOrder is a fast path of processAck for the first records of the ring, if they are in flight and were sent only
// once, in sequence order. The last of them determines the result, and they leave their list together. The caller has
// checked that no record beyond una has arrived.
func (s *Sender) inOrder(ack seq.Num) {
	l := &s.q.list[inFlight]
	id, bytes := s.q.head, 0
	var oldest, newest tick.Time
	for range l.n {
		r := s.q.at(id)
		if id != l.first || r.place != inFlight || r.transmissions != 1 || r.stale ||
			r.kind != Data ||
			ack.Less(r.end()) {
			break
		}
		if bytes == 0 {
			oldest = r.sent
		}
		newest = r.sent
		bytes += int(r.size)
		l.first = r.next
		id++
	}
	n := int(id - s.q.head)
	if n == 0 {
		return
	}
	l.n -= n
	l.bytes -= bytes
	s.q.head = id
	s.fack = s.fack.Add(bytes)
	ev := &s.ev
	ev.records, ev.delivered = n, bytes
	ev.haveOldest, ev.oldest, ev.haveNewest, ev.newest = true, oldest, true, newest
	ev.rack = candidate{true, newest, s.fack}
}

// onArrived records that a record has arrived, for the first time.
func (s *Sender) onArrived(r *record, a *Ack, cumulative bool) {
	ev := &s.ev
	ev.delivered += int(r.size)
	end := r.end()
	if r.stale {
		s.fack = seq.Max(s.fack, end)
		ev.resent = ev.resent || cumulative
		return
	}
	if r.retransmitted() {
		ev.resent = ev.resent || cumulative
		// RFC 8985, 6.2 step 2: an earlier transmission may have arrived. The timestamp echo belongs to the segment at
		// the left edge, so it proves nothing about a selective acknowledgement.
		if cumulative && a.HasTS && s.cfg.Clock.before(a.TSEcr, r.sent) ||
			ev.now.Sub(r.sent) < s.rtt.minRTT() {
			return
		}
	} else {
		s.onArrivedUnresent(r, cumulative)
		if end.Less(s.fack) {
			s.rack.reorderingSeen = true // step 3
		}
		ev.original = ev.original || end.LessEq(s.frto.recover)
	}
	s.fack = seq.Max(s.fack, end)
	ev.rack.updateIfLater(r.sent, end)
}

// onArrivedUnresent collects times for round trip samples: only records that were sent once count (Karn).
func (s *Sender) onArrivedUnresent(r *record, cumulative bool) {
	ev := &s.ev
	if cumulative && !ev.haveOldest {
		ev.haveOldest, ev.oldest = true, r.sent
	}
	if !cumulative && !ev.haveOldSACK {
		ev.haveOldSACK, ev.oldSACK = true, r.sent
	}
	if !ev.haveNewest || r.sent > ev.newest {
		ev.haveNewest, ev.newest = true, r.sent
	}
}

// countDup counts duplicate acknowledgements (RFC 5681, 2), the only sign of arrivals without SACK.
func (s *Sender) countDup(a *Ack) {
	ev := &s.ev
	plain := a.Ack == s.una && ev.acked == 0 && !a.HasData && !a.WindowChanged
	ev.dup = plain && s.q.len() > 0 || ev.newSACK > 0
	if s.mode != NoSACK {
		return
	}
	ev.dup = plain && s.q.len() > 0
	switch {
	case ev.acked > 0:
		// Of the acknowledged records, all but the one that filled the hole were counted as duplicates before. An
		// acknowledgement of part of a record fills no hole.
		before, counted := s.dups, max(ev.records-1, 0)
		s.dups = max(0, min(s.dups-counted, s.q.len()-1))
		ev.delivered -= ev.acked / max(ev.records, 1) * min(before-s.dups, counted)
	case ev.dup && s.state != Loss && s.dups < s.q.len()-max(1, s.lostRecords()):
		before := s.dupBytes()
		s.dups++
		ev.delivered += s.dupBytes() - before
	}
}

// sampleRTT updates the round trip estimates, and returns the shortest sample for congestion control, 0 for none.
func (s *Sender) sampleRTT(a *Ack, now tick.Time) (best tick.Duration) {
	ev := &s.ev
	if ev.haveNewest && (!ev.resent || ev.newSACK > 0) {
		best = max(1, now.Sub(ev.newest))
		s.rtt.updateMin(best, now)
	}
	switch {
	case ev.haveOldest && !ev.resent:
		s.rtt.sample(now.Sub(ev.oldest), s.una, s.nxt)
	case ev.acked > 0 && a.HasTS:
		if r, ok := s.cfg.Clock.since(a.TSEcr, now, s.rtt.srtt()); ok {
			s.rtt.sample(r, s.una, s.nxt)
		}
	case ev.haveOldSACK:
		s.rtt.sample(now.Sub(ev.oldSACK), s.una, s.nxt)
	}
	if s.rtt.shift > 0 {
		s.endBackoff(a, now)
	}
	return best
}

// endBackoff lowers the back-off when data sent after the last timeout is acknowledged, to the smallest value with
// which the timer would have waited for that acknowledgement. The data was sent after that timeout if the timestamp
// echo shows it, or if the record was sent only once, after the timeout. This is no round trip sample if the clock is
// too coarse or the acknowledgement waited for a hole, but it satisfies RFC 6298, 5.7 and Karn. Without it the back-off
// would grow without limit when each acknowledgement waits for several holes.
func (s *Sender) endBackoff(a *Ack, now tick.Time) {
	ev, c := &s.ev, &s.cfg.Clock
	age := tick.Duration(math.MaxInt64)
	if ev.haveNewest && ev.newest >= s.timedOut {
		age = now.Sub(ev.newest)
	}
	if ev.acked > 0 && a.HasTS && !c.before(a.TSEcr, s.timedOut) {
		if n := int32(c.TSVal(now) - a.TSEcr); n >= 0 {
			age = min(age, tick.Duration(n)*c.Tick)
		}
	}
	for k := range s.rtt.shift {
		if s.rtt.rto<<k >= age {
			s.rtt.shift = k
			return
		}
	}
}

// endRound counts the delivered bytes, and reports whether this acknowledgement ended the round; see round.
func (s *Sender) endRound(now tick.Time) bool {
	r := &s.round
	r.delivered += s.ev.delivered
	if s.ev.acked == 0 || s.una.Less(r.end) {
		return false
	}
	if d := now.Sub(r.begun); d > 0 {
		r.rate = int(float64(r.delivered) * float64(tick.Second) / float64(d))
	}
	*r = round{end: s.nxt, wasLimited: r.limited, begun: now, rate: r.rate,
		appLimited: r.appLimited && s.q.len() == 0}
	return true
}

// restartTimeout restarts the retransmission timer (RFC 6298, 5.3) when new data was acknowledged.
func (s *Sender) restartTimeout(now tick.Time) {
	s.rtt.retries = 0
	s.timers.rto = tick.Never
	if s.q.len() > 0 {
		s.timers.rto = now.Add(s.timeout())
	}
	if s.recover.Less(s.una.Add(-1)) && s.state < CWR {
		s.recover = s.una.Add(-1) // keep it near Una, because sequence numbers wrap
	}
}

// updateWindow feeds congestion control, and paces the window while it shrinks.
func (s *Sender) updateWindow(a *Ack, rtt tick.Duration, newRound bool, now tick.Time) {
	ev := &s.ev
	marked := min(max(a.CEBytes, 0), ev.acked)
	if a.ECE && marked == 0 {
		marked = ev.acked
	}
	ece := a.ECE || a.CEBytes > 0
	s.cc.OnAck(&cc.Ack{
		Now: now, Acked: ev.acked, Marked: marked, RTT: rtt, SRTT: s.rtt.srtt(), Round: newRound,
		Limited: s.round.limited || s.round.wasLimited || s.lostRecords() > 0,
		Grow:    s.state != Recovery && s.state != CWR && !ev.exited && !ev.undone && !ece,
	})
	if s.state < CWR {
		s.cc.Recovered()
	}
	// Once per window: acknowledgements of data sent before the last reduction are no new congestion signal.
	if ece && s.state < CWR && s.recover.Less(s.una) && ev.outstanding > 0 {
		s.count.ECNReductions++
		s.enterCWR(false, now)
		if s.q.len() == 0 {
			s.leaveRecovery() // nothing is in flight that could pace the reduction
		}
	}
	if s.state == Recovery || s.state == CWR {
		s.reduceWindow(ev.delivered, ev.acked > 0 && !ev.newlyLost)
	}
}
