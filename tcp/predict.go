package tcp

import (
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// Predicted reports whether s is the next octets of an established connection and nothing besides: all of it lies in the
// window, nothing is held beyond it, and none of Input's checks would refuse it. It changes nothing. For such a segment
//
//	c.InputNext(&segment, now); ...; c.FinishNext(&segment, kept, now)
//
// does what Input, Keep of the first kept octets and Finish do. Everything else takes those.
func (c *Conn) Predicted(s *Segment) bool {
	opt := wire.OptSet(0)
	if c.ts.on {
		opt = wire.HasTS
	}
	return c.state == Established && s.Flags&^wire.PSH == wire.ACK && s.Opt.Present == opt &&
		s.Seq == c.rcvNxt && s.Len > 0 && s.Len <= c.edge.Diff(c.rcvNxt) && len(c.held.v) == 0 &&
		(opt == 0 || int32(s.Opt.TSVal-c.ts.recent) >= 0) && // RFC 7323, 5.3 R1
		uint32(s.Ack-c.una) <= uint32(c.nxt-c.una) && // RFC 5961, 5.2
		!c.finSeen && !c.detached && c.ecn.mode == ECNOff
}

// PredictedAck reports whether s acknowledges something new and says nothing besides, so that none of
// Input's checks would refuse it. It changes nothing. For such a segment InputAck does what Input and Finish do.
func (c *Conn) PredictedAck(s *Segment) bool {
	opt := wire.OptSet(0)
	if c.ts.on {
		opt = wire.HasTS
	}
	return c.state.sends() && s.Flags == wire.ACK && s.Opt.Present == opt && s.Seq == c.rcvNxt && s.Len == 0 &&
		(opt == 0 || int32(s.Opt.TSVal-c.ts.recent) >= 0) && // RFC 7323, 5.3 R1
		uint32(s.Ack-c.una)-1 < uint32(c.nxt-c.una) && c.ecn.mode == ECNOff
}

// InputAck takes a segment that PredictedAck held for just before.
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
	c.n.SegsIn++
	c.run = false
	c.timer.heard(now)
	if c.ts.on && s.Seq.LessEq(c.lastAck) {
		c.ts.recent, c.ts.recentAt = s.Opt.TSVal, now
	}
	if s.Ack == c.una && c.una == c.nxt {
		c.windowUpdate(s, now)
		c.stillShut(now)
	} else {
		c.ackProcess(s, now)
	}
	if s.Len > c.rcvMSS {
		c.rcvMSS = max(c.rcvMSS, min(s.Len, c.cfg.MSS))
	}
	k := &c.now
	k.open, k.push = true, s.Flags&wire.PSH != 0
	k.ecr, k.hasEcr = s.Opt.TSEcr, c.ts.on && s.Opt.TSEcr != 0
}

// FinishNext follows InputNext: the layer above placed or holds the first kept octets of s.
func (c *Conn) FinishNext(s *Segment, kept int, now tick.Time) {
	k := &c.now
	if kept != s.Len {
		*k = current{open: k.open, text: true, push: k.push, offered: true, left: c.rcvNxt, ecr: k.ecr, hasEcr: k.hasEcr}
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
