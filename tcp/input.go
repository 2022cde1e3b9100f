package tcp

import (
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// Input processes the header of s (RFC 9293, 3.10.7.3 and 3.10.7.4) and offers the payload bytes inside the window that
// were never kept. The Offer is valid until the next Input. s is not retained.
func (c *Conn) Input(s *Segment, now tick.Time) *Offer {
	c.beginInput()
	o := &c.offered
	o.N = 0
	if !c.inputFastPath(s, now, o) {
		c.inputSlowPath(s, now, o)
	}
	return o
}

func (c *Conn) beginInput() {
	c.n.SegsIn++
	c.inRun = false
	c.cur = arrival{keptTo: c.rcvNxt}
}

// inputFastPath handles the common segments and returns false for others, which inputSlowPath handles. Common segments
// arrive at RCV.NXT on a connection without ECN. They carry bytes for an established connection, all in the window and
// with nothing held beyond them, or no bytes. They acknowledge sent bytes, and have no option except a current
// timestamp (RFC 7323, 5.3 R1), if negotiated. inputSlowPath's checks take 20 ns more.
func (c *Conn) inputFastPath(s *Segment, now tick.Time, o *Offer) bool {
	if s.Flags&^wire.PSH != wire.ACK || s.Seq != c.rcvNxt || c.ecn.mode != ECNOff ||
		uint32(s.Ack-c.una) > uint32(c.nxt-c.una) { // RFC 5961, 5.2
		return false
	}
	if !c.ts.on && s.Opt.Present != 0 ||
		c.ts.on && (s.Opt.Present != wire.HasTS || int32(s.Opt.TSVal-c.ts.recent) < 0) {
		return false
	}
	if s.Len == 0 {
		if !c.state.sends() {
			return false
		}
	} else if c.state != Established || s.Len > c.rcvAdv.Diff(c.rcvNxt) || !c.outOfOrder.empty() ||
		c.finSeen || c.detached {
		return false
	} else {
		c.cur.hasText, c.cur.hasPush, c.cur.offered = true, s.Flags&wire.PSH != 0, s.Len
		c.cur.ecr = s.Opt.TSEcr
		o.N, o.R[0] = 1, seq.Of(s.Seq, s.Len)
		if s.Len > c.rcvMSS {
			c.rcvMSS = max(c.rcvMSS, min(s.Len, c.cfg.MSS))
		}
	}
	c.cur.unfinished = true
	c.timer.noteSegment(now)
	if c.ts.on && s.Seq.LessEq(c.lastAck) {
		c.ts.recent, c.ts.recentAt = s.Opt.TSVal, now
	}
	c.processAck(s, now)
	return true
}

func (c *Conn) inputSlowPath(s *Segment, now tick.Time, o *Offer) {
	switch c.state {
	case Closed:
		c.n.AfterEnd++
	case SynSent:
		c.inputSynSent(s, now, o)
	default:
		if c.inputSynchronized(s, now) {
			c.inputText(s, now, o)
		}
	}
}

// inputSynchronized makes the first to fifth check of RFC 9293, 3.10.7.4, which the comments name. It reports whether
// the text and FIN of s must be processed.
func (c *Conn) inputSynchronized(s *Segment, now tick.Time) bool {
	rst := s.Flags&wire.RST != 0
	if c.ts.on && !rst {
		if s.Opt.Present&wire.HasTS == 0 {
			// Some peers omit the option in the last ACK of the handshake. Later segments must have it (RFC 7323, 3.2).
			if c.state != SynReceived {
				c.n.NoTimestamp++
				return false
			}
		} else if c.failsPAWS(s, now) {
			c.n.PAWSDrops++
			c.onUnacceptable(s, now)
			return false
		}
	}
	simultaneous := c.state == SynReceived && s.Flags.Has(wire.SYN|wire.ACK) && s.Seq == c.irs &&
		s.Ack == c.nxt
	if !simultaneous && !c.isAcceptable(s) { // first
		c.n.OutOfWindow++
		c.onUnacceptable(s, now)
		c.acceptOldAck(s, now)
		return false
	}
	if rst { // second
		c.inputRST(s, now)
		return false
	}
	if s.Flags&wire.SYN != 0 && !simultaneous { // fourth
		c.inputSYN(now)
		return false
	}
	if s.Flags&wire.ACK == 0 { // fifth
		c.n.NoACK++
		return false
	}
	return c.inputACK(s, now)
}

// isAcceptable is the test of RFC 9293, table 6. It also accepts the segments of the RFC's appendix A.2: a segment
// without data at the right edge, from a peer that filled the window; and any segment at RCV.NXT while the window is
// zero, because of its ACK or RST.
func (c *Conn) isAcceptable(s *Segment) bool {
	wnd := c.rcvWnd()
	n := s.size()
	first := s.Seq.Diff(c.rcvNxt)
	if first >= 0 && first < wnd || first == 0 || n == 0 && first == wnd && s.Flags&wire.RST == 0 {
		return true
	}
	last := first + n - 1
	return n > 0 && last >= 0 && last < wnd
}

// onUnacceptable answers a segment that fails the first check. Bytes that were received before are a retransmission
// after a lost acknowledgement, and are acknowledged without a limit, as is data at the right edge, a window probe. A
// repeated SYN is answered with the SYN-ACK. All other answers are limited, because the segment may be forged or part
// of an ACK loop. A RST gets no answer.
func (c *Conn) onUnacceptable(s *Segment, now tick.Time) {
	if s.Flags&wire.RST != 0 {
		return
	}
	if c.state == SynReceived && s.Flags&(wire.SYN|wire.ACK) == wire.SYN && s.Seq == c.irs {
		if !c.ecn.onRepeatedSYN(c, s) {
			c.endWithReset(CauseAborted)
			return
		}
		c.timer.synDue = true // our SYN-ACK was lost
		return
	}
	if c.state == TimeWait && s.Flags&wire.FIN != 0 && s.Seq.Add(s.size()) == c.rcvNxt {
		c.timer.wait = now.Add(c.cfg.TimeWait)
	}
	first, n := s.Seq.Diff(c.rcvNxt), s.size()
	near := c.isRecent(s) && s.Flags&wire.SYN == 0
	switch {
	case near && n > 0 || n > 0 && s.Seq == c.rcvAdv:
		if s.Len > 0 && first < 0 {
			c.cur.dup = c.receivedPart(seq.Of(s.Start(), s.Len))
			c.n.DupBytes += uint64(c.cur.dup.Len())
		}
		c.oweAck(c.cur.dup, false)
		c.cur.dup = seq.Range{}
	case n == 0 && first == -1: // a keepalive or window probe
		c.answerWindowOrKeepaliveProbe(now)
	default:
		c.oweChallengeAck(now)
		if s.Flags.Has(wire.SYN | wire.ACK) {
			c.ecn.onRepeatedSYNACK(c, s)
		}
	}
}

// acceptOldAck processes the ACK of a segment left of RCV.NXT, which RFC 9293 drops, after a retransmission timeout of
// this end, until new data is acknowledged. A peer uses such numbers (see controlSeq) when this end received its data
// and then shrank the window. If both ends did so, neither would ever accept an acknowledgement of the other.
func (c *Conn) acceptOldAck(s *Segment, now tick.Time) {
	if s.Flags&(wire.ACK|wire.RST|wire.SYN) == wire.ACK && c.isRecent(s) && c.tx.Backoff() > 0 &&
		c.una.Less(s.Ack) && s.Ack.LessEq(c.nxt) {
		c.processAck(s, now)
	}
}

// isRecent reports whether s begins left of RCV.NXT, within recentWindow.
func (c *Conn) isRecent(s *Segment) bool {
	first := s.Seq.Diff(c.rcvNxt)
	return first < 0 && first >= -c.recentWindow()
}

// receivedPart returns the part of r below RCV.NXT, which was received before: a duplicate (RFC 2883). It excludes
// numbers before the peer's first byte.
func (c *Conn) receivedPart(r seq.Range) seq.Range {
	if c.n.BytesIn < 1<<30 {
		r.Start = seq.Max(r.Start, c.irs+1)
	}
	end := c.rcvNxt
	if c.PeerFIN() {
		end--
	}
	r.End = seq.Max(r.Start, seq.Min(r.End, end))
	return r
}

// recentWindow returns how many bytes left of RCV.NXT a retransmission can begin.
func (c *Conn) recentWindow() int { return max(c.space, c.rcvWnd(), 0xffff) }

// inputRST follows RFC 5961, 3.2: only a RST at RCV.NXT resets, and a RST left of the window is not answered. In
// TIME-WAIT no RST has an effect (RFC 1337).
func (c *Conn) inputRST(s *Segment, now tick.Time) {
	switch {
	case s.Seq.Less(c.rcvNxt):
		c.n.OutOfWindow++
	case c.state == TimeWait: // RFC 1337
		c.n.LateRST++
	case s.Seq != c.rcvNxt:
		c.oweChallengeAck(now)
	case c.state == SynReceived:
		c.enterClosed(CauseRefused)
	default:
		c.takeAckOfReset(s)
		c.enterClosed(CauseReset)
	}
}

// takeAckOfReset processes the acknowledgement in a RST. It may be the only acknowledgement of bytes that an aborting
// peer has received.
func (c *Conn) takeAckOfReset(s *Segment) {
	if s.Flags&wire.ACK != 0 && c.una.Less(s.Ack) && s.Ack.LessEq(c.nxt) {
		c.una = s.Ack
		c.events |= Acked
	}
}

// inputSYN handles a SYN in the window of a synchronized connection (RFC 5961, 4.2). In SYN-RECEIVED after a passive
// open the connection returns to LISTEN (RFC 9293, 3.10.7.4, fourth): it ends, and the Listener answers the peer's next
// SYN.
func (c *Conn) inputSYN(now tick.Time) {
	if c.state == SynReceived && c.passive {
		c.enterClosed(CauseRefused)
		return
	}
	c.oweChallengeAck(now)
}

// inputACK is the fifth check. It reports whether the text and FIN of s must be processed.
func (c *Conn) inputACK(s *Segment, now tick.Time) bool {
	if c.state == SynReceived {
		if !c.una.Less(s.Ack) || !s.Ack.LessEq(c.nxt) {
			c.n.BadAck++
			c.reply.set(s.Ack)
			return false
		}
		c.una = s.Ack
		c.initSendWindow(s)
		c.established(now)
	}
	if c.nxt.Less(s.Ack) || s.Ack.Diff(c.una) < -max(c.maxWnd, 1) {
		c.n.BadAck++
		c.oweChallengeAck(now)
		return false
	}
	c.timer.noteSegment(now)
	if c.ts.on {
		c.updateTimestamp(s, now)
	}
	c.ecn.onSegment(c, s)
	if s.Opt.Present&wire.HasUTO != 0 {
		c.adoptUTO(s)
	}
	if c.state == TimeWait {
		return false
	}
	c.processAck(s, now)
	return c.state != Closed
}

// initSendWindow sets the send window from the last segment of the handshake.
func (c *Conn) initSendWindow(s *Segment) {
	w := c.window(s)
	c.right = s.Ack.Add(w)
	c.wl1, c.wl2, c.maxWnd = s.Seq, s.Ack, w
}
