package loss

import (
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// SRTT returns the smoothed round trip, 0 before the first sample.
func (s *Sender) SRTT() tick.Duration { return s.rtt.srtt() }

// RTTVar returns the variation of the round trip.
func (s *Sender) RTTVar() tick.Duration { return s.rtt.rttvar() }

// RTO returns the retransmission timeout with its back-off.
func (s *Sender) RTO() tick.Duration { return s.timeout() }

// Overdue returns the RTO without back-off and the time of the last transmission of the first unacknowledged record. ok
// is false unless data is outstanding and the RTO is backed off.
func (s *Sender) Overdue() (rto tick.Duration, sent tick.Time, ok bool) {
	if s.rtt.shift == 0 || s.q.len() == 0 {
		return 0, 0, false
	}
	return s.rtt.rto, s.q.at(s.q.head).sent, true
}

// Backoff returns the number of consecutive timeouts without newly acknowledged data.
func (s *Sender) Backoff() int { return s.rtt.retries }

// StalledSince returns the time of the first timeout that Backoff counts, the start of the user timeout (RFC 5482; RFC
// 9293, 3.8.3). It returns false if Backoff is 0.
func (s *Sender) StalledSince() (tick.Time, bool) { return s.rtt.stalled, s.rtt.retries > 0 }

// State returns the state of recovery.
func (s *Sender) State() State { return s.state }

// Counters returns the counters.
func (s *Sender) Counters() Counters { return s.count }

// Info returns the state for display.
func (s *Sender) Info(now tick.Time) Info {
	i := Info{
		State: s.state, Mode: s.mode, CC: s.cc.State(),
		SRTT: s.SRTT(), RTTVar: s.RTTVar(), MinRTT: s.rtt.minRTT(), RTO: s.RTO(),
		Backoff: s.Backoff(),
		Records: s.q.len(), Outstanding: s.Outstanding(), Pipe: s.Pipe(),
		Sacked: s.q.list[sacked].bytes, Lost: s.q.list[lost].bytes + s.q.list[lostAgain].bytes,
		ReorderSeen: s.rack.reorderingSeen, ReorderWnd: s.reorderWindow(),
		Rate: s.round.rate, AppLimited: s.round.appLimited, Counters: s.count,
	}
	if s.cfg.Pacing {
		i.PacingRate = s.cc.PacingRate(s.rtt.srtt())
	}
	return i
}

// String returns the name of the state.
func (st State) String() string {
	names := [...]string{"open", "disorder", "cwr", "recovery", "loss"}
	if int(st) < len(names) {
		return names[st]
	}
	return "invalid"
}

// Transmissions returns how often the outstanding records that end at or before to were transmitted in total, but at
// most most.
func (s *Sender) Transmissions(to seq.Num, most int) (n int) {
	for id := s.q.head; id != s.q.tail && n < most && s.q.at(id).end().LessEq(to); id++ {
		n += int(s.q.at(id).transmissions)
	}
	return min(n, most)
}
