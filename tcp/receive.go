package tcp

import (
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// inputText offers the new bytes of s inside the window and records its FIN (RFC 9293, 3.10.7.4, sixth to eighth).
func (c *Conn) inputText(s *Segment, now tick.Time, o *Offer) {
	c.cur.unfinished = true
	c.cur.ecr = s.Opt.TSEcr
	if s.Flags&(wire.SYN|wire.FIN) != 0 || s.Len > 0 {
		c.ecn.onText(c)
	}
	if !c.state.receives() {
		if s.Len > 0 {
			c.n.AfterFIN++
		}
		return
	}
	if s.Flags&wire.URG != 0 {
		c.inputURG(s)
	}
	c.cur.hasPush = s.Flags&wire.PSH != 0
	text := seq.Of(s.Start(), s.Len)
	if s.Len > 0 {
		if c.refuseText(text) {
			return
		}
		c.rcvMSS = max(c.rcvMSS, min(s.Len, c.cfg.MSS))
		c.offer(text, o)
	}
	if s.Flags&wire.FIN != 0 {
		c.inputFIN(text)
	}
}

// inputFIN records the peer's FIN after text. A FIN in order is accepted (RFC 9293, 3.10.7.4, eighth), and bytes held
// beyond it are dropped. A FIN behind a hole waits until the hole is filled. If bytes are held beyond such a FIN,
// either may be forged: the FIN is ignored until it is repeated in order.
func (c *Conn) inputFIN(text seq.Range) {
	if c.rcvNxt.Less(text.Start) && !c.outOfOrder.empty() && text.End.Less(c.outOfOrder.end()) {
		c.n.EarlyFINs++
		return
	}
	c.finSeen, c.finSeq = true, text.End
	c.cur.ackNow = true
}

// refuseText resets a detached connection when new bytes arrive (RFC 9293, 3.6.1), and reports whether it did.
func (c *Conn) refuseText(text seq.Range) bool {
	if !c.detached || text.End.LessEq(c.rcvNxt) {
		return false
	}
	c.n.RefusedText++
	c.endWithReset(CauseAborted)
	return true
}

// offer sets o to the bytes of text that are in the window and were never kept, and records duplicate bytes in c.cur.
func (c *Conn) offer(text seq.Range, o *Offer) {
	k := &c.cur
	k.hasText = true
	k.hadHoles = !c.outOfOrder.empty()
	if c.finSeen && c.finSeq.Less(text.End) {
		c.finSeen = false // bytes beyond that FIN: the FIN or this segment is forged
	}
	if text.Start.Less(c.rcvNxt) {
		k.dup = c.receivedPart(text)
	} else {
		k.dup, _ = c.outOfOrder.duplicate(text)
	}
	c.n.DupBytes += uint64(k.dup.Len())
	fresh := text.Clip(seq.Range{Start: c.rcvNxt, End: c.rcvAdv})
	if fresh.Len()+max(0, c.rcvNxt.Diff(text.Start)) < text.Len() {
		c.n.WindowTrimmed++
		k.ackNow = true
	}
	if fresh.Empty() {
		return
	}
	if c.outOfOrder.empty() {
		o.R[0], o.N = fresh, 1
	} else if c.outOfOrder.gaps(fresh, c.rcvNxt, c.cfg.MaxHoles, o) {
		c.n.HolesRefused++
		k.ackNow = true
	}
	for _, r := range o.R[:o.N] {
		k.offered += r.Len()
	}
}

// Keep records that the layer above placed or holds the bytes of r, which must be part of the last Offer. Offered bytes
// that are not kept before Finish count as never received.
func (c *Conn) Keep(r seq.Range) {
	if k := &c.cur; r.Start == k.keptTo && r.Len() <= k.offered-k.kept {
		k.keptTo = r.End
		k.kept += r.Len()
	} else {
		c.keepAhead(r)
	}
}

// keepAhead is Keep for bytes that do not follow the kept bytes in order.
func (c *Conn) keepAhead(r seq.Range) {
	k := &c.cur
	r = r.Clip(seq.Range{Start: k.keptTo, End: c.rcvAdv})
	if !k.unfinished || k.offered == 0 || r.Empty() {
		return
	}
	k.kept += r.Len()
	if r.Start == k.keptTo {
		k.keptTo = r.End
		return
	}
	c.n.OutOfOrder++
	c.outOfOrder.add(r)
}

// Finish moves RCV.NXT over the kept bytes, processes the FIN and decides about the acknowledgement. It must follow
// every Input.
func (c *Conn) Finish(now tick.Time) {
	k := &c.cur
	if !k.unfinished {
		return
	}
	k.unfinished = false
	c.n.BytesIn += uint64(k.kept)
	if k.kept < k.offered {
		c.n.NotKept += uint64(k.offered - k.kept)
	}
	old := c.rcvNxt
	if c.rcvNxt = k.keptTo; !c.outOfOrder.empty() {
		c.rcvNxt = c.outOfOrder.removeUpTo(k.keptTo)
	}
	if c.finSeen && c.finSeq.Less(c.rcvNxt) {
		c.rcvNxt = c.finSeq
	}
	if c.rcvNxt != old {
		c.events |= Received
		c.auto.onReceived(c, now)
	}
	if c.finSeen && c.rcvNxt == c.finSeq && c.state.receives() {
		c.peerFIN(now)
	}
	if k.isSYNACK && c.rcvNxt != old { // one acknowledgement for the SYN and its data
		c.dropAcks()
		k.ackNow = true
	}
	c.ackPolicy(old, now)
	c.ecn.finish()
}

// peerFIN processes the peer's FIN, which RCV.NXT has reached (RFC 9293, 3.10.7.4, eighth).
func (c *Conn) peerFIN(now tick.Time) {
	c.finSeen = false
	c.n.AfterFIN += uint64(len(c.outOfOrder.ranges))
	c.outOfOrder.drop()
	c.rcvNxt++
	c.rcvAdv = seq.Max(c.rcvAdv, c.rcvNxt)
	c.events |= PeerClosed
	c.cur.ackNow = true
	if c.enter(peerFIN); c.state == TimeWait {
		c.startTimeWait(now)
	}
}

// startTimeWait starts the timer of TIME-WAIT.
func (c *Conn) startTimeWait(now tick.Time) {
	c.timer.stop()
	c.timer.wait = now.Add(c.cfg.TimeWait)
}

// inputURG follows RFC 6093: urgent bytes stay in the stream, and the layer above gets the event Urgent.
func (c *Conn) inputURG(s *Segment) {
	up := s.Seq.Add(int(s.Urgent))
	if !c.urgent || c.rcvUp.Less(up) {
		c.rcvUp, c.urgent = up, true
		c.events |= Urgent
	}
}
