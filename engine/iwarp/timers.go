package iwarp

import (
	"xwarp/ddp/rdmap"
	"xwarp/mpa/startup"
	"xwarp/tcp/tick"
)

// Disconnect closes the connection: gracefully when nothing is under way, with flushes otherwise (rdmap.QP.Busy tells).
func (s *Session) Disconnect(now tick.Time) {
	switch s.phase {
	case phaseFull:
		s.qp.Close()
		s.Settle(now)
	case phaseStartup:
		s.phase = phaseEnding
		if s.tr != nil {
			s.tr.Abort(now)
		}
	}
	if s.tr != nil {
		s.tr.Wake()
	}
}

// Abort ends the connection with RST and flushes the queue pair.
func (s *Session) Abort(now tick.Time) {
	if s.qp != nil {
		s.qp.Abort()
	}
	if s.phase == phaseFull {
		s.rcv.Release()
	}
	if s.phase != phaseClosed {
		s.phase = phaseEnding
	}
	if s.tr != nil {
		s.tr.Abort(now)
	}
}

// Settle does what the layers asked for since the last call; the transport calls it before it transmits.
func (s *Session) Settle(now tick.Time) {
	if s.finish && !s.out.unsent() {
		s.finish = false
		s.closeAt = now.Add(s.cfg.CloseTimeout)
		s.tr.Shutdown(now)
	}
	// After the end the queue pair may have another stream.
	if s.qp == nil || !s.full || s.last != nil || s.phase == phaseClosed {
		return
	}
	if s.waits || s.startAt != tick.Never {
		s.waitFirst(now)
	}
	a := s.qp.Actions()
	if a == 0 {
		return
	}
	if a&rdmap.ActTimer != 0 {
		s.closeAt = now.Add(s.cfg.CloseTimeout)
	}
	if a&rdmap.ActRST != 0 {
		s.tr.Abort(now)
	} else if a&rdmap.ActFIN != 0 {
		s.tr.Shutdown(now)
	}
	if e := s.qp.Err(); e != nil {
		s.note(e)
	}
	switch s.qp.State() {
	case rdmap.RTR, rdmap.RTS:
	default:
		s.tellDown()
	}
}

// waitFirst starts and ends a responder's wait for the first FPDU.
func (s *Session) waitFirst(now tick.Time) {
	switch {
	case s.phase == phaseFull && s.qp.State() != rdmap.RTR:
		s.startAt = tick.Never
	case s.waits && s.params.PeerToPeer:
		s.startAt = now.Add(s.cfg.StartupTimeout)
	case s.waits && s.cfg.FirstFPDUTimeout > 0:
		s.startAt = now.Add(s.cfg.FirstFPDUTimeout)
	}
	s.waits = false
}

// Deadline returns when Expire must be called.
func (s *Session) Deadline() tick.Time { return min(s.startAt, s.closeAt) }

// Expire runs the timers that are due.
func (s *Session) Expire(now tick.Time) {
	if s.startAt <= now {
		s.expireStart(now)
	}
	if s.closeAt <= now {
		s.closeAt = tick.Never
		if s.qp != nil {
			s.qp.Lost()
		}
		s.tr.Abort(now)
	}
}

// expireStart ends a connection whose start-up, or whose initiator's first FPDU, takes too long.
func (s *Session) expireStart(now tick.Time) {
	s.startAt = tick.Never
	if s.phase == phaseFull {
		if s.qp.State() == rdmap.RTR {
			s.note(timeoutIn(startup.StageEstablished))
			s.Abort(now)
		}
		return
	}
	s.note(timeoutIn(s.stage()))
	s.startupClosed("timed out")
	s.phase = phaseEnding
	s.tr.Abort(now)
}

func timeoutIn(st startup.Stage) error { return &StageError{Stage: st} }

// StageError says in which step the start-up timed out. It is an ErrTimeout.
type StageError struct{ Stage startup.Stage }

func (e *StageError) Error() string {
	step := "in the exchange"
	switch e.Stage {
	case startup.StageAwaitRequest:
		step = "waiting for the peer's MPA Request"
	case startup.StageDecide:
		step = "waiting for the consumer to accept or reject"
	case startup.StageAwaitReply:
		step = "waiting for the peer's MPA Reply"
	case startup.StageAwaitRtr:
		step = "waiting for the peer's Rtr frame"
	case startup.StageEstablished:
		step = "waiting for the initiator's first FPDU, before which a responder may send none"
	}
	return ErrTimeout.Error() + ": " + step
}

// Unwrap makes errors.Is(err, ErrTimeout) true.
func (e *StageError) Unwrap() error { return ErrTimeout }
