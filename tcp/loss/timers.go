package loss

import "xwarp/tcp/tick"

// timers are the deadlines of RFC 8985, 8. A timer that is off is Never.
type timers struct {
	rto, tlp, reorder, renege tick.Time
}

func (t *timers) init() {
	*t = timers{tick.Never, tick.Never, tick.Never, tick.Never}
}

// timeout returns the RTO with back-off. With one segment outstanding it leaves the peer time for a delayed
// acknowledgement, however small MinRTO is.
func (s *Sender) timeout() tick.Duration {
	base := s.rtt.rto
	if s.q.len() == 1 && s.rtt.s8 != 0 {
		base = max(base, min(s.rtt.srtt()+s.cfg.MaxAckDelay, s.rtt.max))
	}
	return s.rtt.backedOff(base)
}

// armTimers sets the timers after an acknowledgement or a change of state.
func (s *Sender) armTimers(now tick.Time) {
	if s.q.len() == 0 {
		s.timers.init()
		return
	}
	if s.timers.rto == tick.Never {
		s.timers.rto = now.Add(s.timeout())
	}
	s.armTLP(now)
}

// armTLP schedules the tail loss probe (RFC 8985, 7.2).
func (s *Sender) armTLP(now tick.Time) {
	s.timers.tlp = tick.Never
	if s.mode != RACK || s.cfg.NoTLP || s.state == Recovery || s.state == Loss ||
		s.q.list[sacked].n > 0 || s.tlp.inFlight || s.tlp.want != tlpNone || !s.rtt.fresh ||
		s.q.len() == 0 {
		return
	}
	pto := ptoWithoutRTT
	if s.rtt.s8 != 0 {
		pto = max(2*s.rtt.srtt(), ptoFloor)
		if s.q.len() == 1 {
			pto += s.cfg.MaxAckDelay
		}
	}
	s.timers.tlp = min(now.Add(pto), s.timers.rto)
}

// Deadline returns the time at which Expire must be called, Never if no timer runs.
func (s *Sender) Deadline() tick.Time {
	t := min(s.timers.rto, s.timers.tlp, s.timers.reorder, s.timers.renege)
	if s.pace.blocked {
		t = min(t, s.pace.next)
	}
	return t
}

// Expire handles the timers that are due at now. ExpiredRTO implies that the window was reduced: with ECN, the next new
// segment must carry CWR.
func (s *Sender) Expire(now tick.Time) (x Expired) {
	if s.pace.blocked && s.pace.next <= now {
		s.pace.blocked = false
		x |= ExpiredPacing
	}
	if s.q.len() == 0 {
		return x
	}
	if s.timers.reorder <= now {
		s.timers.reorder = tick.Never
		x |= ExpiredReorder
		s.beginEvent(now)
		s.detect(now)
		if s.ev.newlyLost {
			s.enterRecovery(now)
			if s.state == Recovery {
				s.reduceWindow(0, false)
			}
		}
	}
	if s.timers.renege <= now {
		s.timers.renege = tick.Never
		if s.q.at(s.q.head).place == sacked {
			s.onReneged(now)
			return x | ExpiredRTO
		}
	}
	switch {
	case s.timers.tlp <= now:
		s.timers.tlp = tick.Never
		s.tlp.want = tlpNew
		if s.finSent() {
			s.tlp.want = tlpLast
		}
		s.rtt.fresh = false
		s.timers.rto = now.Add(s.timeout())
		x |= ExpiredTLP
	case s.timers.rto <= now:
		s.onTimeout(now)
		x |= ExpiredRTO
	}
	return x
}

// onTimeout handles a retransmission timeout (RFC 6298, 5.4 to 5.6; RFC 8985, 6.3).
func (s *Sender) onTimeout(now tick.Time) {
	s.count.Timeouts++
	first := s.rtt.retries == 0
	if first {
		s.rtt.stalled = now
	}
	again := s.state == Loss && !first
	// RFC 5682, 2.1, step 1: no F-RTO in the recovery of an earlier timeout
	twice := s.state == Loss && s.una.LessEq(s.recover)
	if s.state < CWR || s.state == Loss && first {
		s.cc.Save()
		s.beginUndo()
	}
	s.cc.OnTimeout(s.Outstanding(), !again)
	s.round.limited = true // the retransmissions fill the loss window
	s.reduced, s.timedOut = now, now
	s.state = Loss
	s.recover, s.beyond = s.nxt, s.nxt
	s.dups = 0
	s.partial.on = false
	s.tlp.cancel()
	s.timers.reorder = tick.Never
	if s.cfg.ForgetSACK || !first || s.q.at(s.q.head).place == sacked {
		s.dropSACK()
	}
	s.markTimedOut(now)
	s.forcedResends = 1
	s.frto.enterRecovery(first && !twice && !s.cfg.NoFRTO && !s.finSent(), s.nxt)
	s.rtt.retries++
	s.rtt.shift = min(s.rtt.shift+1, maxBackoff)
	s.timers.rto = now.Add(s.timeout())
	s.timers.tlp = tick.Never
}

// markTimedOut marks the head lost, and all other records in flight. With RACK, those that may still be acknowledged in
// time stay in flight.
func (s *Sender) markTimedOut(now tick.Time) {
	wait := tick.Duration(0)
	if s.mode == RACK {
		wait = s.rack.rtt + s.reorderWindow()
	}
	if s.q.at(s.q.head).place == inFlight {
		s.markLost(s.q.head)
	}
	l := s.q.list[inFlight]
	id := l.first
	for range l.n {
		next := s.q.at(id).next
		if s.mode == RACK && now.Sub(s.q.at(id).sent) < wait {
			break
		}
		s.markLost(id)
		id = next
	}
	s.lossMark, s.above, s.aboveN = s.q.tail, 0, 0
}

// dropSACK discards all SACK information (RFC 2018, 8).
func (s *Sender) dropSACK() {
	if s.q.list[sacked].n == 0 {
		return
	}
	s.q.forget()
	s.fack = s.una
	s.timers.renege = tick.Never
}

// onReneged handles a peer that discarded bytes after it had SACKed them. It acts as after a timeout: all SACKed bytes
// must be retransmitted (RFC 2018, 8).
func (s *Sender) onReneged(now tick.Time) {
	s.count.Reneged++
	s.dropSACK()
	s.onTimeout(now)
	s.frto.step = frtoOff
	s.undo.on = false
}
