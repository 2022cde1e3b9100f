package loss

import (
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// undo is the state for the detection of a spurious recovery.
type undo struct {
	on     bool
	marker seq.Num // Una when recovery began
	bytes  int     // bytes retransmitted in recovery, or before as a tail loss probe, and not reported as duplicates
	resent bool    // bytes were retransmitted since recovery began
	// eifel reports that RFC 3522 can still decide: when recovery began, the head had been sent only once, and no
	// acknowledgement of new data has arrived since.
	eifel       bool
	firstResent tick.Time // time of the first retransmission since recovery began
}

func (s *Sender) beginUndo() {
	s.undo = undo{on: !s.cfg.NoUndo, marker: s.una, eifel: s.q.len() > 0 &&
		!s.q.at(s.q.head).retransmitted()}
	if s.una.Less(s.tlp.end) {
		s.undo.bytes = s.tlp.resent
	}
}

func (u *undo) onResent(n int, now tick.Time) {
	if !u.on {
		return
	}
	u.bytes += n
	if !u.resent {
		u.resent, u.firstResent = true, now
	}
}

// frto is the state of F-RTO (RFC 5682): after a timeout, the acknowledgements of two new segments show whether the old
// ones still arrive.
type frto struct {
	step    frtoStep
	recover seq.Num // SND.NXT at the timeout
	head    seq.Num // end of the head, which is retransmitted in parts if the MSS fell
	credit  int     // new segments still to send
}

type frtoStep uint8

const (
	frtoOff   frtoStep = iota
	frtoHead           // step 1: the head must be retransmitted
	frtoFirst          // step 2: waiting for the first acknowledgement
	frtoNew            // step 2b: new segments must be sent
	frtoWait           // step 3: waiting for the second acknowledgement
)

// finSent reports whether the FIN was sent: there cannot be new data.
func (s *Sender) finSent() bool {
	return s.q.len() > 0 && s.q.at(s.q.tail-1).kind == FIN
}

func (f *frto) enterRecovery(on bool, nxt seq.Num) {
	*f = frto{recover: nxt}
	if on {
		f.step = frtoHead
	}
}

// onResent records the retransmission of the record that ends at end, or of a part of it. If it is the head, step 2
// begins. If the window has room for a second record, its retransmission ends F-RTO: an acknowledgement of it would
// look like that of its original.
func (f *frto) onResent(end seq.Num) {
	switch {
	case f.step == frtoHead:
		f.step, f.head = frtoFirst, end
	case f.step == frtoFirst && f.head.Less(end):
		f.step = frtoOff
	}
}

func (f *frto) onSent(seq.Num) {
	f.credit--
	if f.credit <= 0 {
		f.step = frtoWait
	}
}

// checkSpurious runs the detection algorithms on this acknowledgement. One with ECN-Echo proves nothing (RFC
// 4015, 3.4).
func (s *Sender) checkSpurious(a *Ack, now tick.Time) {
	ev, u := &s.ev, &s.undo
	if a.ECE {
		u.on = false
	}
	if s.checkFRTO() && u.on {
		s.count.UndoFRTO++
		s.undoRecovery(now)
		return
	}
	if !u.on {
		return
	}
	if ev.acked > 0 && u.eifel && s.state >= Recovery {
		u.eifel = false
		// The head was marked lost. Its original arrived if it is not retransmitted yet, or if the timestamp echo is
		// older than the first retransmission.
		if ev.edge == edgeUnsent || ev.edge == edgeResent && a.HasTS &&
			s.cfg.Clock.before(a.TSEcr, u.firstResent) {
			s.count.UndoEifel++
			s.undoRecovery(now)
			return
		}
	}
	if ev.dsack && u.resent && u.bytes <= 0 {
		s.count.UndoDSACK++
		s.undoRecovery(now)
	}
}

// checkFRTO reports whether the timeout was spurious.
func (s *Sender) checkFRTO() bool {
	ev, f := &s.ev, &s.frto
	if s.state != Loss || f.step == frtoOff {
		return false
	}
	if s.recover.LessEq(s.una) { // all acknowledged at once: inconclusive
		f.step = frtoOff
		return false
	}
	switch f.step {
	case frtoHead: // acknowledged before it was retransmitted
		if ev.acked > 0 {
			f.step = frtoOff
			return true
		}
	case frtoFirst:
		switch {
		case ev.acked > 0 && s.una.Less(f.head): // only a part of the head
		case ev.acked > 0:
			f.step, f.credit = frtoNew, frtoSegments
		case ev.dup:
			f.step = frtoOff
		}
	case frtoNew, frtoWait:
		switch {
		case ev.acked > 0 || ev.original:
			f.step = frtoOff
			return true
		case ev.dup:
			f.step = frtoOff
			s.cc.SetCwnd(3 * s.mss) // the window that slow start would have reached
		}
	}
	return false
}

// undoRecovery undoes a spurious recovery (RFC 4015, 3): lost records are in flight again, and the window is restored.
func (s *Sender) undoRecovery(now tick.Time) {
	timedOut := s.state == Loss
	s.ev.undone = true
	s.undo.on = false
	s.frto.step = frtoOff
	s.forcedResends = 0
	s.partial.on = false
	if s.state >= Recovery {
		if timedOut || s.mode != SACK {
			s.q.restore()
		}
		s.dups = 0
		s.setOpenState()
	}
	s.cc.Undo(s.Pipe(), s.ev.acked)
	if !timedOut {
		s.rack.reorderingSeen = true // the late segment was retransmitted, so step 3 could not detect it
		return
	}
	if s.rtt.shift > 0 {
		// There was no sample since the timeout, but the round trip was the RTO plus the time since then (RFC 4015,
		// 3.6). Without this sample, if a peer delays acknowledgements by more than the RTO, each segment would be sent
		// twice for ever.
		s.rtt.sample(s.rtt.rto+now.Sub(s.rtt.stalled), s.una, s.nxt)
	}
	s.rtt.spurious, s.rtt.newData = true, s.nxt
	s.restartTimeout(now)
}
