package loss

// advanceMark applies RFC 6675's IsLost to all records at once. A record is lost when three segments after it, or more
// than two MSS of bytes, are selectively acknowledged. The segments are known here, so advanceMark counts them instead
// of the RFC's discontiguous ranges. lossMark moves only forward, so each record is judged once.
func (s *Sender) advanceMark() {
	for s.lossMark != s.q.tail && (s.above > (dupThresh-1)*s.mss || s.aboveN >= dupThresh) {
		id := s.lossMark
		r := s.q.at(id)
		switch r.place {
		case sacked:
			s.forgetAboveMark(id, r)
		case inFlight:
			if s.state < Recovery || !r.retransmitted() || r.sent <= s.reduced {
				s.markLost(id)
			}
		}
		s.lossMark++
	}
}

// rescueRetransmit applies rules 3 and 4 of RFC 6675's NextSeg when there is no new data. It marks a record lost and
// returns true: the first record in a hole that is not marked yet, else, once per recovery, the last record. It returns
// false if there is neither.
func (s *Sender) rescueRetransmit() bool {
	id := s.lossMark
	for range reorderWalk {
		id = s.q.skip(id)
		if id == s.q.tail || s.fack.Less(s.q.at(id).end()) {
			break
		}
		if r := s.q.at(id); r.place == inFlight && !r.retransmitted() {
			s.markLost(id)
			return true
		}
		id++
	}
	last := s.q.tail - 1
	if s.q.len() == 0 || s.una.Less(s.rescue) || s.q.at(last).place != inFlight {
		return false
	}
	s.rescue = s.recover
	s.markLost(last)
	return true
}

// detectDups marks the head lost by the rules of RFC 6582: after three duplicate acknowledgements, or in recovery after
// a partial acknowledgement. If the head was sent in an MTU probe, all records of the probe are lost.
func (s *Sender) detectDups() {
	if s.q.len() == 0 || s.q.at(s.q.head).place != inFlight {
		return
	}
	switch {
	case s.state < Recovery && s.dups >= dupThresh && s.recover.Less(s.una):
	case s.state == Recovery && s.ev.acked > 0:
	default:
		return
	}
	inMTUProbe := s.isMTUProbe(s.q.at(s.q.head))
	s.markLost(s.q.head)
	for id := s.q.head + 1; inMTUProbe && id != s.q.tail && s.isMTUProbe(s.q.at(id)) &&
		s.q.at(id).place == inFlight; id++ {
		s.markLost(id)
	}
	s.dups = max(0, min(s.dups, s.q.len()-1))
}
