package tcp

import (
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// pendingAck is one acknowledgement that is due.
type pendingAck struct {
	ack seq.Num
	// from is the number that the previous acknowledgement acknowledges: StretchAck limits ack - from.
	from       seq.Num
	dup        seq.Range // duplicate bytes to report (RFC 2883), or empty
	reportsGap bool      // bytes beyond a hole, or duplicates, arrived: send SACK blocks if negotiated
	ece        bool      // carries ECE (RFC 3168, 6.1.3)
	// noSACK: this acknowledges pure ACKs, and must not carry SACK blocks (RFC 9768, 3.2.2.5.1).
	noSACK bool
}

// ackState is the set of acknowledgements due to the peer, and their limits.
type ackState struct {
	owed    [maxPendingAcks]pendingAck
	nOwed   int
	lastAck seq.Num // Last.ACK.sent (RFC 7323, 4.3)
	ackedTo seq.Num // value of lastAck after all acknowledgements that are due are sent
	quick   int     // acknowledgements that are still sent without delay
	// challengeAt is the earliest time of the next challenge ACK. probeAnswerAt is that of the next answer to a window
	// or keepalive probe.
	challengeAt, probeAnswerAt tick.Time
}

// oweAck queues an acknowledgement of RCV.NXT. stretch reports that it is for in-order bytes, so that the last queued
// one may cover them. The fields of pendingAck are assigned one by one, because copying a composite literal takes 5 ns
// more.
func (c *Conn) oweAck(dup seq.Range, stretch bool) {
	c.inRun = false
	gap, ece, from := len(c.outOfOrder.ranges) > 0 || !dup.Empty(), c.ecn.echo(), c.ackedTo
	c.stopDelayedAck()
	c.ackedTo = c.rcvNxt
	if c.nOwed > 0 {
		last := &c.owed[c.nOwed-1]
		most := c.cfg.StretchAck * c.rcvMSS
		merge := stretch && last.dup.Empty() && last.ece == ece && c.cfg.StretchAck > 2 &&
			c.rcvNxt.Diff(last.from) <= most
		if merge || c.nOwed == len(c.owed) {
			if !dup.Empty() {
				last.dup = dup
			}
			last.ack, last.reportsGap = c.rcvNxt, last.reportsGap || gap
			last.ece, last.noSACK = ece, false
			return
		}
	}
	p := &c.owed[c.nOwed]
	p.ack, p.from, p.dup, p.reportsGap, p.ece, p.noSACK = c.rcvNxt, from, dup, gap, ece, false
	c.nOwed++
}

// oweInOrderAck is oweAck with stretch for in-order bytes without duplicates. It has a fast path for the usual case
// that the last queued acknowledgement can cover them.
func (c *Conn) oweInOrderAck() {
	if c.nOwed > 0 && len(c.outOfOrder.ranges) == 0 && c.ecn.mode == ECNOff {
		last := &c.owed[c.nOwed-1]
		if last.dup.Empty() && c.cfg.StretchAck > 2 &&
			c.rcvNxt.Diff(last.from) <= c.cfg.StretchAck*c.rcvMSS {
			last.ack, c.ackedTo = c.rcvNxt, c.rcvNxt
			c.stopDelayedAck()
			return
		}
	}
	c.oweAck(seq.Range{}, true)
}

func (c *Conn) dropAcks() {
	c.nOwed = 0
	c.stopDelayedAck()
}

// stopDelayedAck stops the delayed ACK timer, and resets the count of unreported marks.
func (c *Conn) stopDelayedAck() {
	c.ecn.acc.unreportedMarks = 0
	c.timer.delack = tick.Never
	c.ackDelay.waiting, c.push.held, c.push.brief = false, false, false
}

// AckNow makes the next Poll send a delayed acknowledgement without waiting for the timer.
func (c *Conn) AckNow() {
	if c.timer.delack != tick.Never {
		c.oweAck(seq.Range{}, false)
	}
}

// ackPolicy decides when to acknowledge the current segment (RFC 5681, 4.2; RFC 9293, 3.8.6.3). old is RCV.NXT before
// it.
func (c *Conn) ackPolicy(old seq.Num, now tick.Time) {
	k := &c.cur
	switch {
	case !k.dup.Empty():
		c.oweAck(k.dup, false)
	case k.offered > 0 && k.kept == 0 && !k.ackNow && c.offered.R[0].Start == old: // refused: as if never received
	case k.ackNow, k.hasText && (k.hadHoles || len(c.outOfOrder.ranges) > 0),
		k.offered > 0 && k.kept == 0:
		c.oweAck(seq.Range{}, false)
	case c.rcvNxt == old:
	default:
		c.ackInOrder(now)
	}
}

// ackInOrder decides when to acknowledge in-order bytes for which nothing requires an immediate acknowledgement.
func (c *Conn) ackInOrder(now tick.Time) {
	switch {
	case c.quick > 0:
		c.quick--
		c.oweInOrderAck()
	case c.rcvNxt.Diff(c.ackedTo) > c.rcvMSS:
		if !c.ackDelay.startWait(c, now) {
			c.oweInOrderAck()
		}
	case c.cfg.DelayedAck <= 0:
		c.oweInOrderAck()
	default:
		if c.timer.delack == tick.Never {
			c.timer.delack = now.Add(c.cfg.DelayedAck)
		}
		if c.cur.hasPush {
			c.push.NoteHeld()
		}
	}
}

// oweChallengeAck queues an acknowledgement for a segment that may be forged, if the limit of this connection and the
// shared Budget allow it (RFC 5961, 7). It checks the limit of the connection first, so that a connection beyond its
// limit takes nothing from the shared Budget.
func (c *Conn) oweChallengeAck(now tick.Time) {
	if now < c.challengeAt || c.cfg.Budget != nil && !c.cfg.Budget.allow(now) {
		c.n.ChallengeSuppressed++
		return
	}
	c.challengeAt = now.Add(challengePause)
	c.n.ChallengeAcks++
	c.oweAck(seq.Range{}, false)
}

// answerWindowOrKeepaliveProbe queues the answer to a keepalive or window probe. There is at most one answer in
// probeAnswerPause on each connection. The shared Budget does not limit answers: a peer that gets none ends its
// connection, and other peers must not be able to cause that.
func (c *Conn) answerWindowOrKeepaliveProbe(now tick.Time) {
	if now < c.probeAnswerAt {
		c.n.ProbesSuppressed++
		return
	}
	c.n.ProbesAnswered++
	c.probeAnswerAt = now.Add(probeAnswerPause)
	c.oweAck(seq.Range{}, false)
}

// pollAck writes the next acknowledgement that is due to out, and reports whether there was one.
func (c *Conn) pollAck(now tick.Time, out *Out) bool {
	if c.nOwed == 0 {
		return false
	}
	p := c.owed[0]
	c.nOwed--
	copy(c.owed[:c.nOwed], c.owed[1:c.nOwed+1])
	c.header(out, wire.ACK, c.controlSeq(), p.ack, now)
	if !p.noSACK {
		c.putSACK(out, p.dup, p.ack)
	}
	c.ecn.setPureAckFlags(out, p.ece)
	c.n.PureAcks++
	return true
}

// controlSeq returns the sequence number of segments without data: SND.NXT, or the right edge of a window that shrank,
// because the peer would not accept a number beyond it.
func (c *Conn) controlSeq() seq.Num {
	if c.state < Established || c.nxt.Diff(c.right) < 1<<c.wscale {
		return c.nxt
	}
	return seq.Max(c.una, c.right)
}

// putSACK adds the blocks that fit, the duplicate first (RFC 2883, 4), when SACK was negotiated. If ack is older than
// RCV.NXT, later segments of the batch have arrived, and the ranges held now are not added: together with ack they
// would report a hole that does not exist, and the peer would retransmit it.
func (c *Conn) putSACK(out *Out, dup seq.Range, ack seq.Num) {
	if !c.sackOK || len(c.outOfOrder.ranges) == 0 && dup.Empty() {
		return
	}
	n := 0
	if !dup.Empty() {
		out.Opt.SACK[0] = dup
		n = 1
		c.n.DSACKsSent++
		// also if both are equal: otherwise the peer cannot recognize the first block as a duplicate
		if _, in := c.outOfOrder.duplicate(dup); !in.Empty() && ack.LessEq(dup.Start) {
			out.Opt.SACK[1] = in
			n = 2
		}
	}
	if ack == c.rcvNxt {
		n = c.outOfOrder.blocks(&out.Opt.SACK, n, c.maxSACKs())
	}
	if n == 0 {
		return
	}
	out.Opt.NSACK = uint8(n)
	out.Opt.Present |= wire.HasSACK
}

// maxSACKs returns the number of SACK blocks for which a header has room.
func (c *Conn) maxSACKs() int {
	if c.ts.on {
		return 3
	}
	return 4
}

// clearOwedAcks drops all queued acknowledgements, because a segment is sent that acknowledges all bytes before
// RCV.NXT.
func (c *Conn) clearOwedAcks() {
	c.dropAcks()
	c.ackedTo = c.rcvNxt
}
