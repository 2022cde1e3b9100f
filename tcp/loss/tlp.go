package loss

import (
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// tlp is the tail loss probe's state (RFC 8985, 7). A probe takes this path:
//
//  1. armTLP sets timers.tlp after each transmission and acknowledgement, if no other recovery is under way.
//  2. Expire finds the timer due and sets want to tlpNew, or to tlpLast if the FIN was sent.
//  3. With tlpNew, Permit allows one MSS, regardless of the congestion window. New data goes out, and onSent starts the
//     probe's episode. If there is none, NoNewData sets tlpLast.
//  4. With tlpLast, Retransmit returns the last record, even if it is not lost, and Retransmitted calls onSent.
//  5. checkTLP ends the episode when an acknowledgement covers end: without a loss, with one that the probe repaired,
//     or as spurious. An acknowledgement of new bytes that arrives before step 3 or 4 cancels the probe.
type tlp struct {
	want     tlpStep
	inFlight bool    // the probe is unacknowledged
	resent   int     // bytes retransmitted as a probe, 0 for new data; TLP.is_retrans if not 0
	end      seq.Num // TLP.end_seq
}

// tlpStep is the action that is due after the probe timer has expired.
type tlpStep uint8

const (
	tlpNone tlpStep = iota
	tlpNew          // send a new segment
	tlpLast         // no new data: retransmit the last record
)

func (t *tlp) cancel() { *t = tlp{} }

func (t *tlp) onSent(nxt seq.Num, again int) {
	*t = tlp{inFlight: true, resent: again, end: nxt}
}

// checkTLP is TLP_process_ack (RFC 8985, 7.4.2).
func (s *Sender) checkTLP(a *Ack, now tick.Time) {
	t, ev := &s.tlp, &s.ev
	if t.want != tlpNone && (ev.acked > 0 || ev.newSACK > 0) {
		t.want = tlpNone
	}
	if !t.inFlight || a.Ack.Less(t.end) {
		return
	}
	switch {
	case t.resent == 0:
		t.cancel()
	case ev.dsack && a.SACK[0].End == t.end:
		t.cancel()
		s.count.ProbesSpurious++
	case t.end.Less(a.Ack):
		// The probe repaired the loss, which still is a congestion signal.
		t.cancel()
		s.count.ProbesRepaired++
		if s.state < CWR && s.q.len() > 0 {
			s.enterCWR(true, now)
		} else if s.state < CWR {
			s.cc.OnLoss(s.flight())
			s.cc.SetCwnd(s.cc.Ssthresh())
			ev.cwr = true
		}
	case ev.acked == 0 && a.NSACK == 0 && !a.HasData && !a.WindowChanged:
		t.cancel()
		s.count.ProbesSpurious++
	}
}
