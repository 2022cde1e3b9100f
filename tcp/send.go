package tcp

import (
	"xwarp/tcp/loss"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// Poll writes the next segment to transmit to out and reports whether there was one. In order: RST, SYN, an
// acknowledgement that echoes the ECN bits of a SYN-ACK, retransmissions, new bytes, FIN, window or keepalive probes,
// other acknowledgements. src may be nil when there is nothing to send. Poll is faster with the same out as in the last
// call.
func (c *Conn) Poll(now tick.Time, src Source, out *Out) bool {
	if c.inRun = c.inRun && out.of == c && out.at == now; c.inRun { // nothing else is due
		sent, _ := c.pollNew(now, src, out)
		return sent || c.pollWindowOrKeepaliveProbe(now, out) || c.pollAck(now, out)
	}
	if c.reply.due {
		c.pollReset(now, out)
		return true
	}
	switch {
	case c.state == Closed:
		return false
	case c.state <= SynReceived:
		return c.pollSYN(now, out) || c.state == SynReceived && c.pollAck(now, out)
	case c.ecn.acc.echoDue && c.pollAck(now, out): // RFC 9768, 3.2.2.1: only a pure ACK can echo
		return true
	case c.state.sends() && c.pollData(now, src, out):
		return true
	}
	return c.pollWindowOrKeepaliveProbe(now, out) || c.pollAck(now, out)
}

// pollData writes the next segment with data to out, a retransmission first, and reports whether there was one.
func (c *Conn) pollData(now tick.Time, src Source, out *Out) bool {
	for {
		if tx, ok := c.tx.Retransmit(now); ok {
			c.resend(tx, now, out)
			return true
		}
		if sent, again := c.pollNew(now, src, out); !again {
			return sent
		}
	}
}

// pollNew writes the next segment with new bytes or FIN to out; sent reports whether there was one. again reports that
// there was none, and that loss recovery has a retransmission instead.
func (c *Conn) pollNew(now tick.Time, src Source, out *Out) (sent, again bool) {
	if c.fin >= finSent || c.tx.Permit(now) == 0 {
		return false, false
	}
	n, fin, more := c.nextNewSegment(now, src)
	if n == 0 && !fin {
		return false, c.tx.NoNewData(now)
	}
	c.sendNew(n, fin, more, now, out)
	if more && !fin && c.cfg.ProbeMTU && now >= c.pmtu.next {
		c.growMTUProbe(src, now, out)
	}
	return true, false
}

// resend retransmits a record with its boundaries. It is cut only if EMSS fell below its length.
func (c *Conn) resend(tx loss.Tx, now tick.Time, out *Out) {
	r := tx.Range
	text := r
	fin := tx.Kind == loss.FIN
	if fin {
		text.End--
	}
	if text.Len() > c.emss {
		r = seq.Of(r.Start, c.emss)
		text, fin = r, false
		c.n.SplitRetransmit++
	}
	c.segment(out, text, fin, now)
	out.Flags |= wire.PSH
	out.Retransmit = true
	c.pmtu.onResent(c, r, now)
	c.tx.Retransmitted(r, now)
}

// nextNewSegment returns the length of the next new segment. fin reports that it carries the FIN, more that bytes are
// left after it.
func (c *Conn) nextNewSegment(now tick.Time, src Source) (n int, fin, more bool) {
	usable := c.right.Diff(c.nxt)
	room := max(0, min(c.emss, usable))
	if c.nxt.Less(c.frozen) {
		n, more = c.sendablePart(c.frozen.Diff(c.nxt), usable, now), true
		c.hasMore = true
		return n, false, more
	}
	if src != nil {
		n, more = src.Next(room)
	}
	if n == 0 && more && room < c.emss {
		if c.maySendPart(usable) {
			n, more = src.Next(c.emss)
		}
		if n == 0 && more {
			c.onWindowBlocked(now)
		}
	}
	c.hasMore = more
	if n > room {
		c.frozen = c.nxt.Add(n)
		return c.sendablePart(n, usable, now), false, true
	}
	if c.fin == finQueued && !more {
		if usable > n {
			fin = true
		} else if n == 0 {
			c.onWindowBlocked(now)
		}
	}
	return n, fin, more
}

// sendablePart returns how much of a frozen record of n bytes may be sent now: all of it, or a part in the cases of
// KeepBoundaries. Otherwise the record waits, and the result is 0.
func (c *Conn) sendablePart(n, usable int, now tick.Time) int {
	room := max(0, min(c.emss, usable))
	switch {
	case n <= room:
		return n
	case room == c.emss:
		c.n.SplitEMSS++
		return room
	case c.maySendPart(usable) &&
		(!c.keepBoundaries || c.maxWnd < min(n, c.emss) || c.windowStuck()):
		c.n.SplitWindow++
		return room
	}
	c.onWindowBlocked(now)
	return 0
}

// maySendPart reports whether a window of usable bytes, less than a segment, may be filled: rules (3) and (4) of RFC
// 9293, 3.8.6.2.1. With keepBoundaries it returns false, except in the cases of KeepBoundaries that concern the window.
func (c *Conn) maySendPart(usable int) bool {
	if usable <= 0 || c.una != c.nxt {
		return false
	}
	if c.keepBoundaries && c.maxWnd >= c.emss && !c.windowStuck() {
		return false
	}
	return usable >= c.maxWnd/2 || c.timer.override
}

// windowStuck reports whether the peer's window stayed open but too small during smallWindowProbes window probes: the
// peer's buffer may have shrunk permanently.
func (c *Conn) windowStuck() bool { return c.timer.smallReplies >= smallWindowProbes }

// onWindowBlocked records that the Source waits for the peer's window. With nothing in flight it starts the persist
// timer, because only a window probe reveals a lost window update.
func (c *Conn) onWindowBlocked(now tick.Time) {
	c.windowBlocked = true
	if c.una == c.nxt && c.timer.persist == tick.Never {
		c.timer.persist = now.Add(c.persistInterval())
		if c.timer.zeroSince == tick.Never {
			c.timer.zeroSince = now
		}
	}
}

func (c *Conn) persistInterval() tick.Duration {
	d, n := max(c.tx.RTO(), persistMin), c.timer.windowProbes
	if d > c.cfg.PersistMax>>n {
		return c.cfg.PersistMax
	}
	return d << n
}

// expirePersist queues a window probe. Window probes continue while the peer answers.
func (c *Conn) expirePersist(now tick.Time) {
	t := &c.timer
	t.windowProbes++
	t.windowProbeSent = true
	t.windowProbeDue, t.override = true, true
	t.persist = now.Add(c.persistInterval())
}

// sendNew writes a segment with n new bytes, and FIN if fin, to out, and records it as sent.
func (c *Conn) sendNew(n int, fin, more bool, now tick.Time, out *Out) {
	text := seq.Of(c.nxt, n)
	if c.inRun && !fin {
		c.nextOfRun(out, text)
	} else {
		c.segment(out, text, fin, now)
	}
	c.pmtu.onSent(c, text, n)
	kind := loss.Data
	r := text
	if fin {
		kind = loss.FIN
		r.End++
		c.fin = finSent
	}
	if !more && n > 0 {
		out.Flags |= wire.PSH
	}
	c.ecn.setNewDataFlags(c, out)
	c.tx.Sent(r, kind, !more, now)
	c.nxt = r.End
	c.frozen = seq.Max(c.frozen, c.nxt)
	c.n.BytesOut += uint64(n)
	c.timer.noteSent()
	c.inRun = c.inRun || !fin && c.outOfOrder.empty() && c.nOwed == 0 && c.tx.Steady() &&
		out.Opt.Present&(wire.HasAccECN0|wire.HasAccECN1) == 0 && !c.ecn.acc.hasNews()
	if c.inRun && out.of == nil {
		out.Run, out.of, out.at = RunFirst, c, now
	}
}

// PollRun adds up to most segments to the run that Poll began in out, all of the length of the segment in out, and
// returns their number. It changes out to the last of them. The others have the same header, except for sequence number
// and PSH. PollRun may return fewer segments than could be sent, also 0: call Poll for the rest.
func (c *Conn) PollRun(now tick.Time, src RunSource, out *Out, most int) (n int) {
	size := out.Payload.Len()
	if !c.inRun || out.of != c || out.at != now || !c.hasMore || size == 0 ||
		out.Payload.End != c.nxt || c.nxt != c.frozen || c.fin != finNone ||
		c.cfg.ProbeMTU && now >= c.pmtu.next {
		return 0
	}
	most = min(most, c.tx.PermitRun(size, now), c.right.Diff(c.nxt)/c.emss)
	if most <= 0 {
		return 0
	}
	n, more := src.NextRun(size, most)
	if n == 0 {
		return 0
	}
	c.hasMore = more
	c.tx.SentRun(size, n, !more, now)
	c.nxt = c.nxt.Add(n * size)
	c.frozen = c.nxt
	c.n.BytesOut += uint64(n * size)
	c.n.SegsOut += uint64(n - 1)
	c.nextOfRun(out, seq.Of(c.nxt.Add(-size), size))
	if !more {
		out.Flags |= wire.PSH
	}
	return n
}

// TakeBack revokes the segments from sequence number from on, which Poll wrote but which were not transmitted. The next
// bytes of the Source begin at from. The acknowledgement in their headers becomes due again.
func (c *Conn) TakeBack(from seq.Num, now tick.Time) {
	n := c.nxt.Diff(from)
	if c.fin == finSent {
		c.fin = finQueued
		n--
	}
	c.n.BytesOut -= uint64(n)
	c.nxt, c.frozen, c.inRun = from, from, false
	c.tx.TakeBack(from, now)
	c.pmtu.onUnsent(from)
	c.oweAck(seq.Range{}, false)
}

// nextOfRun changes the previous segment in out to one with the bytes text. The rest of the header stays.
func (c *Conn) nextOfRun(out *Out, text seq.Range) {
	out.Seq, out.Payload, out.Flags, out.Run = text.Start, text, wire.ACK, RunNext
	c.n.SegsOut++
	c.ecn.setFlags(out)
}

// segment writes the header of a segment with the bytes text, and FIN if fin, to out. It adds SACK blocks if they fit
// without cutting the record; otherwise a pure ACK with them stays due.
func (c *Conn) segment(out *Out, text seq.Range, fin bool, now tick.Time) {
	f := wire.ACK
	if fin {
		f |= wire.FIN
	}
	c.header(out, f, text.Start, c.rcvNxt, now)
	out.Payload = text
	c.push.NoteReply(now, pushWait)
	dup := c.owesDSACK()
	fits := text.Len()+wire.SACKLen(min(c.maxSACKs(), len(c.outOfOrder.ranges))) <= c.emss
	switch {
	case c.outOfOrder.empty() && !dup:
		c.clearOwedAcks()
	case c.sackOK && fits && !dup:
		c.putSACK(out, seq.Range{}, c.rcvNxt)
		c.clearOwedAcks()
	default:
		c.keepNeededAcks()
	}
	c.ecn.setFlags(out)
}

// owesDSACK reports whether a queued acknowledgement reports duplicate bytes (RFC 2883).
func (c *Conn) owesDSACK() bool {
	for i := range c.nOwed {
		if !c.owed[i].dup.Empty() {
			return true
		}
	}
	return false
}

// keepNeededAcks drops the queued acknowledgements that a segment with data replaces. It keeps those that report
// duplicates or a hole at RCV.NXT, and advances them to RCV.NXT. For a peer without SACK they are duplicate
// acknowledgements.
func (c *Conn) keepNeededAcks() {
	n := 0
	for _, o := range c.owed[:c.nOwed] {
		if o.reportsGap && (o.ack == c.rcvNxt || !o.dup.Empty()) {
			o.ack = c.rcvNxt
			c.owed[n] = o
			n++
		}
	}
	c.nOwed = n
	c.stopDelayedAck()
	c.ackedTo = c.rcvNxt
}

// growMTUProbe turns the new segment in out into a path MTU probe, if one is due, by adding further records to it. Each
// has its own entry in the retransmission queue: if the probe is lost, they are retransmitted one by one, uncut (RFC
// 4821, 7.4). A segment with SACK blocks or AccECN counters is not used: these would make it longer than the probed
// size, and than the link's MTU.
func (c *Conn) growMTUProbe(src Source, now tick.Time, out *Out) {
	if c.nxt != c.frozen || c.events&EMSSChanged != 0 ||
		out.Opt.Present&^wire.HasTS != 0 {
		return
	}
	size := c.pmtu.nextMTUProbeSize(c, c.right.Diff(c.nxt), now)
	if size == 0 {
		return
	}
	start := out.Payload.Start
	room := size - c.packet(out.Payload.Len())
	for range maxMTUProbeRecords {
		n, more := src.Next(min(room, c.emss))
		if n == 0 || n > room {
			c.frozen = c.nxt.Add(n)
			break
		}
		r := seq.Of(c.nxt, n)
		c.tx.Sent(r, loss.Data, !more, now)
		c.nxt, c.frozen = r.End, r.End
		c.n.BytesOut += uint64(n)
		room -= n
		if !more {
			break
		}
	}
	if out.Payload.End == c.nxt {
		return
	}
	out.Payload.End = c.nxt
	out.MTUProbe, out.Run, c.inRun = true, RunNone, false
	c.tx.MTUProbe(out.Payload)
	c.pmtu.probe = mtuProbe{on: true, r: seq.Range{Start: start, End: c.nxt},
		size: c.packet(out.Payload.Len())}
	c.pmtu.trial.size = 0
	c.n.MTUProbes++
}
