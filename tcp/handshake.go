package tcp

import (
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// inputSynSent processes a segment in SYN-SENT (RFC 9293, 3.10.7.3). The comments name the checks of that section.
func (c *Conn) inputSynSent(s *Segment, now tick.Time, o *Offer) {
	ack, rst := s.Flags&wire.ACK != 0, s.Flags&wire.RST != 0
	if ack && (s.Ack.LessEq(c.iss) || c.nxt.Less(s.Ack)) { // first
		c.n.BadAck++
		if !rst {
			c.reply.set(s.Ack)
		}
		return
	}
	if rst && ack { // second
		c.enterClosed(CauseRefused)
		return
	}
	if rst || s.Flags&wire.SYN == 0 { // fifth
		c.n.NoSYN++
		return
	}
	c.initReceiveSpace(s.Seq)
	c.negotiate(s, now)
	c.timer.noteSegment(now)
	if !ack {
		c.enter(peerSYN)
		c.initSendWindow(s)
		c.right = c.nxt.Add(int(s.Window))
		c.timer.restartSYN(c.cfg.SYNTimeout)
		return
	}
	c.una = s.Ack
	c.initSendWindow(s)
	c.established(now)
	c.oweAck(seq.Range{}, false)
	c.cur.isSYNACK = true
	c.inputText(s, now, o)
}

// negotiate applies the options of the peer's SYN (RFC 9293, 3.7.1; RFC 7323, 2.3 and 3.2; RFC 2018, 2).
func (c *Conn) negotiate(s *Segment, now tick.Time) {
	opt := &s.Opt
	if opt.Present&wire.HasMSS != 0 {
		c.peerMSS = max(int(opt.MSS), minPeerMSS)
	} else {
		c.peerMSS = c.defaultMSS()
	}
	if opt.Present&wire.HasWScale != 0 && !c.cfg.NoWScale {
		c.wscale = min(opt.WScale, wire.MaxWScale)
	} else {
		c.wscale, c.rcvScale = 0, 0
		c.cfg.NoWScale = true
	}
	c.clampSpace()
	c.ts.on = c.ts.on && opt.Present&wire.HasTS != 0
	if c.ts.on {
		c.ts.recent, c.ts.recentAt = opt.TSVal, now
	}
	c.sackOK = c.sackOK && opt.Present&wire.HasSACKPermitted != 0
	c.ecn.negotiate(c, s)
	c.adoptUTO(s)
}

// adoptUTO replaces the user timeout by the larger of it and that of the peer's option, within limits (RFC 5482, 3.1).
// A consumer that wants none keeps none.
func (c *Conn) adoptUTO(s *Segment) {
	if s.Opt.Present&wire.HasUTO == 0 || !c.cfg.AdoptUTO || s.Opt.UTO.Value == 0 ||
		c.cfg.UserTimeout < 0 {
		return
	}
	d := tick.Duration(s.Opt.UTO.Value) * tick.Second
	if s.Opt.UTO.Minutes {
		d *= 60
	}
	c.cfg.UserTimeout = min(UTOMax, max(c.cfg.UserTimeout, d, UTOMin))
}

// pollSYN writes the SYN or SYN-ACK to out if one is due, and reports whether it did.
func (c *Conn) pollSYN(now tick.Time, out *Out) bool {
	if !c.timer.synDue {
		return false
	}
	c.timer.synDue = false
	f := wire.SYN
	if c.state == SynReceived {
		f |= wire.ACK
	}
	c.header(out, f, c.iss, c.rcvNxt, now)
	c.synOptions(out, now)
	out.Retransmit = c.timer.synSent(now)
	if out.Retransmit {
		c.n.SYNRetransmits++
	}
	c.ecn.setSYNFlags(c, out)
	if f&wire.ACK != 0 {
		c.clearOwedAcks()
	}
	return true
}

// synOptions writes the options that a SYN offers or a SYN-ACK grants.
func (c *Conn) synOptions(out *Out, now tick.Time) {
	opt := &out.Opt
	opt.Present, opt.MSS = wire.HasMSS, uint16(c.cfg.MSS)
	if !c.cfg.NoWScale {
		opt.Present |= wire.HasWScale
		opt.WScale = c.rcvScale
	}
	if c.sackOK {
		opt.Present |= wire.HasSACKPermitted
	}
	if c.ts.on {
		opt.Present |= wire.HasTS
		opt.TSVal, opt.TSEcr = c.tsval(now), c.ts.recent
	}
	if c.cfg.AnnounceUTO && c.cfg.UserTimeout > 0 {
		opt.Present |= wire.HasUTO
		opt.UTO = utoOption(c.cfg.UserTimeout)
	}
}

// utoOption encodes d in seconds, or in minutes if the seconds exceed 15 bits.
func utoOption(d tick.Duration) wire.UserTimeout {
	const most = 1<<15 - 1
	if s := (d + tick.Second - 1) / tick.Second; s <= most {
		return wire.UserTimeout{Value: uint16(s)}
	}
	return wire.UserTimeout{Minutes: true, Value: uint16(min((d+tick.Minute-1)/tick.Minute, most))}
}

// initPassive makes c, after Init, the connection of a half-open entry. syn is the peer's SYN. The SYN-ACK announced
// window. It was sent tries times so far, first at sentAt.
func (c *Conn) initPassive(syn *Segment, window int, sentAt tick.Time, tries int, now tick.Time) {
	c.passive = true
	c.enter(peerSYN)
	c.nxt = c.iss + 1
	c.initReceiveSpace(syn.Seq)
	c.rcvAdv = c.rcvNxt.Add(window)
	c.negotiate(syn, now)
	c.timer.acceptSYN(sentAt, tries)
}
