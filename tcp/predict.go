package tcp

import (
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// Predicted reports whether s is the next octets of an established connection and nothing besides: all of it
// lies in the window, nothing is held beyond it, and none of Input's checks would refuse it. It changes
// nothing. For such a segment
//
//	c.InputNext(&segment, now); ...; c.FinishNext(&segment, kept, now)
//
// does what Input, Keep of the first kept octets and Finish do. Everything else takes those.
func (c *Conn) Predicted(s *Segment) bool {
	return c.state == Established && s.Flags&^wire.PSH == wire.ACK && c.usualOptions(s) &&
		s.Seq == c.rcvNxt && s.Len > 0 && s.Len <= c.edge.Diff(c.rcvNxt) && len(c.held.v) == 0 &&
		uint32(s.Ack-c.una) <= uint32(c.nxt-c.una) && // RFC 5961, 5.2
		!c.finSeen && !c.detached && c.ecn.mode == ECNOff
}

// PredictedAck reports whether s acknowledges something new and says nothing besides, so that none of
// Input's checks would refuse it. It changes nothing. For such a segment InputAck does what Input and Finish do.
func (c *Conn) PredictedAck(s *Segment) bool {
	return c.state.sends() && s.Flags == wire.ACK && c.usualOptions(s) && s.Seq == c.rcvNxt &&
		s.Len == 0 &&
		uint32(s.Ack-c.una)-1 < uint32(c.nxt-c.una) && c.ecn.mode == ECNOff
}

// usualOptions reports whether s has no option but a timestamp that is not old (RFC 7323, 5.3 R1), if those
// were negotiated.
func (c *Conn) usualOptions(s *Segment) bool {
	if !c.ts.on {
		return s.Opt.Present == 0
	}
	return s.Opt.Present == wire.HasTS && int32(s.Opt.TSVal-c.ts.recent) >= 0
}

// InputAck takes the header of a segment that PredictedAck or Predicted held for just before.
func (c *Conn) InputAck(s *Segment, now tick.Time) {
	c.n.SegsIn++
	c.run = false
	c.timer.heard(now)
	if c.ts.on {
		c.tsUpdate(s, now)
	}
	c.ackProcess(s, now)
}

// InputNext takes the header of a segment that Predicted held for just before.
func (c *Conn) InputNext(s *Segment, now tick.Time) {
	c.InputAck(s, now)
	c.rcvMSS = max(c.rcvMSS, min(s.Len, c.cfg.MSS))
	k := &c.now
	k.open, k.push = true, s.Flags&wire.PSH != 0
	k.ecr, k.hasEcr = s.Opt.TSEcr, c.ts.on && s.Opt.TSEcr != 0
}

// FinishNext follows InputNext: the layer above placed or holds the first kept octets of s.
func (c *Conn) FinishNext(s *Segment, kept int, now tick.Time) {
	k := &c.now
	if kept != s.Len {
		*k = current{open: k.open, text: true, push: k.push, offered: s.Len, left: c.rcvNxt,
			ecr: k.ecr, hasEcr: k.hasEcr}
		if kept > 0 {
			c.Keep(seq.Of(s.Seq, kept))
		}
		c.Finish(now)
		return
	}
	if !k.open {
		return // ended meanwhile
	}
	k.open = false
	c.n.OctetsIn += uint64(kept)
	c.rcvNxt = c.rcvNxt.Add(kept)
	c.events |= Received
	c.auto.received(c, now)
	c.ackInOrder(now)
}
