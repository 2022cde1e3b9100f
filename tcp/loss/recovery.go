package loss

import "xwarp/tcp/tick"

// prr is the state of proportional rate reduction (RFC 9937, 6), which spreads the reduction of the window over the
// acknowledgements of one round trip.
type prr struct {
	delivered int // bytes delivered since recovery began
	out       int // bytes sent since then
	flight    int // RecoverFS: bytes not known to have arrived when recovery began
}

// enterRecovery reacts to newly found losses: it enters fast recovery, or in recovery reduces the window again if a
// retransmission was lost. After a timeout it does nothing.
func (s *Sender) enterRecovery(now tick.Time) {
	switch s.state {
	case Loss:
		return
	case Recovery:
		// The loss of a retransmission is a second sign of congestion (RFC 5681, 4.3), if the retransmission was sent
		// after the reaction to the first sign.
		if s.ev.lostAgain {
			s.cc.OnLoss(s.Pipe() + s.q.list[lost].bytes + s.q.list[lostAgain].bytes)
			s.beginReduction(now)
		}
		return
	case CWR:
		// This window was reduced already (RFC 3168, 6.1.2).
		s.undo.on = false
		s.prr = prr{flight: max(1, s.ev.unreported)}
	default:
		s.cc.Save()
		s.beginUndo()
		s.cc.OnLoss(s.flight())
		s.beginReduction(now)
	}
	s.count.FastRecoveries++
	s.state = Recovery
	s.recover, s.beyond = s.nxt, s.nxt
	s.tlp.cancel()
	s.rescue = s.una
	if s.q.len() > 0 {
		s.rescue = s.q.at(s.q.head).end()
	}
}

// enterCWR reduces the window without a retransmission: for a mark, or a loss that a tail loss probe repaired.
func (s *Sender) enterCWR(loss bool, now tick.Time) {
	if loss {
		s.cc.OnLoss(s.flight())
	} else {
		s.cc.OnECN(s.flight())
	}
	s.undo.on = false
	s.beginReduction(now)
	s.state = CWR
	s.recover = s.nxt
}

// flight is the FlightSize on which a reduction is based: the window while it limits the sender, else the outstanding
// bytes (RFC 9438, 4.6; RFC 7661, 4.4.1). The outstanding bytes alone are too few after the first acknowledgement of a
// batch, because nothing was sent yet in response to the earlier ones.
func (s *Sender) flight() int {
	if s.round.limited || s.round.wasLimited {
		return max(s.ev.outstanding, s.cc.Cwnd())
	}
	return s.ev.outstanding
}

func (s *Sender) beginReduction(now tick.Time) {
	s.prr = prr{flight: max(1, s.ev.unreported)}
	s.reduced = now
	s.ev.cwr = true
}

// reduceWindow is PRR's work on one acknowledgement: the window becomes the pipe plus the bytes that may be sent now.
// safe reports that Una advanced and no loss was found.
func (s *Sender) reduceWindow(delivered int, safe bool) {
	p, pipe, target := &s.prr, s.Pipe(), s.cc.Ssthresh()
	if delivered <= 0 && !s.ev.newlyLost && !s.ev.cwr {
		return
	}
	p.delivered += delivered
	var n int
	if pipe > target {
		n = (p.delivered*target+p.flight-1)/p.flight - p.out
	} else {
		n = max(p.delivered-p.out, delivered)
		if safe {
			n += s.mss
		}
		n = min(target-pipe, n)
	}
	if n <= 0 && p.out == 0 && s.state == Recovery {
		n = s.mss // the fast retransmission itself
	}
	s.cc.SetCwnd(pipe + max(n, 0))
}

// checkExit ends recovery when all that was outstanding at its begin is acknowledged.
func (s *Sender) checkExit() {
	if s.ev.acked > 0 && s.state >= CWR && s.recover.LessEq(s.una) {
		s.leaveRecovery()
	}
	if s.state < CWR {
		s.setOpenState()
	}
}

func (s *Sender) leaveRecovery() {
	s.ev.exited = s.state != Loss // in Loss the window grows with each acknowledgement, also with this one
	if s.state != Loss {
		w := s.cc.Ssthresh()
		if s.mode == NoSACK {
			w = min(w, max(s.Outstanding(), s.mss)+s.mss) // RFC 6582, 3.2 step 3: no burst
		}
		s.cc.SetCwnd(w)
	}
	if s.state >= Recovery {
		if !s.ev.widened {
			s.rack.onRecovered()
		}
		// A hole in data sent after recovery began is another window's loss, with its own reduction (RFC 5681, 4.3).
		s.ev.newlyLost = s.ev.newlyLost || s.una.Less(s.beyond)
	}
	s.dups = 0
	s.forcedResends = 0
	s.frto.step = frtoOff
	s.state = Open
	s.setOpenState()
}

func (s *Sender) setOpenState() {
	s.state = Open
	if s.q.list[sacked].n > 0 || s.dups > 0 {
		s.state = Disorder
	}
}
