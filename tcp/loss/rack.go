package loss

import (
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// rack is the state of RFC 8985, 5.3.
type rack struct {
	candidate                    // RACK.segment
	rtt            tick.Duration // RACK.rtt
	reorderingSeen bool          // reordering_seen
	round          seq.Num       // dsack_round
	inRound        bool
	mult           int // reo_wnd_mult
	persist        int // reo_wnd_persist
}

// candidate is the segment sent last among those that arrived.
type candidate struct {
	ok   bool
	sent tick.Time
	end  seq.Num
}

func (c *candidate) updateIfLater(sent tick.Time, end seq.Num) {
	if !c.ok || sent > c.sent || sent == c.sent && c.end.Less(end) {
		*c = candidate{true, sent, end}
	}
}

func (k *rack) init() {
	*k = rack{mult: 1}
}

// update updates RACK.rtt and RACK.segment by c, the candidate of this acknowledgement (RFC 8985, 6.2 step 2).
func (k *rack) update(c candidate, now tick.Time) {
	if c.ok {
		k.rtt = now.Sub(c.sent)
		k.updateIfLater(c.sent, c.end)
	}
}

// onDSACK widens the reordering window once per round trip (RFC 8985, 6.2, step 4). Reports beyond the number of
// retransmissions come from duplication in the network.
func (k *rack) onDSACK(s *Sender) (widened bool) {
	if k.inRound && !s.una.Less(k.round) {
		k.inRound = false
	}
	if k.inRound || s.count.DSACKs > s.count.Retransmitted {
		return false
	}
	k.inRound, k.round = true, s.nxt
	k.mult = min(k.mult+1, maxReorderMult)
	k.persist = reorderPersist
	return true
}

// onRecovered counts a recovery without DSACK. After reorderPersist of them the reordering window is reset.
func (k *rack) onRecovered() {
	if k.persist > 0 {
		k.persist--
	}
	if k.persist == 0 {
		k.mult = 1
	}
}

// reorderWindow returns the reordering window, as RFC 8985's RACK_update_reo_wnd computes it.
func (s *Sender) reorderWindow() tick.Duration {
	if !s.rack.reorderingSeen && (s.state >= Recovery || s.q.list[sacked].n >= dupThresh) {
		return 0
	}
	return min(tick.Duration(s.rack.mult)*s.rtt.minRTT()/4, s.rtt.srtt())
}

// detect marks lost records by the rules of the mode.
func (s *Sender) detect(now tick.Time) {
	switch s.mode {
	case RACK:
		s.detectRACK(now)
	case SACK:
		s.advanceMark()
	case NoSACK:
		s.detectDups()
	}
}

// detectRACK marks lost records by step 5 of RFC 8985, 6.2. Records in flight are ordered by the time sent, so the walk
// ends at the first that was sent after RACK.segment. Records sent before it, and not yet due, move the timer to the
// latest of their due times, so that one expiry judges all of them. After reorderWalk such records the walk ends as
// well.
func (s *Sender) detectRACK(now tick.Time) {
	s.timers.reorder = tick.Never
	if !s.rack.ok {
		return
	}
	l := &s.q.list[inFlight]
	if s.rack.end.LessEq(s.una) && (l.n == 0 || s.q.at(l.first).sent >= s.rack.sent) {
		return // nothing in flight was sent before RACK.segment: the usual case in a burst
	}
	s.walkRACK(now)
}

func (s *Sender) walkRACK(now tick.Time) {
	wait := s.rack.rtt + s.reorderWindow()
	l := &s.q.list[inFlight]
	id, walked := l.first, 0
	for range l.n {
		r := s.q.at(id)
		next := r.next
		if r.sent > s.rack.sent || walked == reorderWalk {
			break
		}
		due := r.sent.Add(wait)
		switch {
		case r.sent == s.rack.sent && !r.end().Less(s.rack.end): // not sent before RACK.segment, by RACK_sent_after
			walked++
		case due <= now:
			s.markLost(id)
		default:
			walked++
			s.timers.reorder = due
		}
		id = next
	}
}

// markLost marks a record in flight lost.
func (s *Sender) markLost(id uint32) {
	r := s.q.at(id)
	if s.isMTUProbe(r) {
		s.q.move(id, lost)
		return
	}
	s.ev.newlyLost = true
	if r.retransmitted() {
		s.count.LostRetransmits++
		s.ev.lostAgain = s.ev.lostAgain || r.sent > s.reduced
		s.q.move(id, lostAgain)
		return
	}
	s.q.move(id, lost)
	if s.state >= Recovery && s.beyond.Less(r.end()) {
		s.beyond = r.end()
	}
}

// MTUProbe records that the records of r were sent in one packet that may exceed the path MTU. Its loss is no sign of
// congestion: the records are retransmitted, and the window stays (RFC 4821, 3 and 7.6.1). A timeout still reduces the
// window.
func (s *Sender) MTUProbe(r seq.Range) { s.mtuProbe = r }

// isMTUProbe reports whether a record was sent only once, in a path MTU probe.
func (s *Sender) isMTUProbe(r *record) bool {
	return !s.mtuProbe.Empty() && !r.retransmitted() && s.mtuProbe.Covers(r.span())
}
