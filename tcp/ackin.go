package tcp

import (
	"xwarp/tcp/loss"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// processAck applies an acceptable acknowledgement to the window, loss recovery and our FIN (RFC 9293, 3.10.7.4,
// fifth).
func (c *Conn) processAck(s *Segment, now tick.Time) {
	if !c.state.sends() {
		c.windowUpdate(s, now)
		return
	}
	old := c.right
	if c.una.LessEq(s.Ack) {
		c.windowUpdate(s, now)
	}
	if c.una == c.nxt && s.Ack == c.una && s.Opt.Present&wire.HasSACK == 0 &&
		c.ecn.mode != ECNAccurate {
		c.startPersistIfBlocked(now) // nothing in flight: the segment only carries data or updates the window
		return
	}
	a := loss.Ack{
		Ack:           s.Ack,
		HasTS:         c.ts.on && s.Opt.Present&wire.HasTS != 0,
		TSEcr:         s.Opt.TSEcr,
		WindowChanged: c.right != old && s.Ack == c.una,
		HasData:       s.size() > 0,
	}
	if c.sackOK && s.Opt.Present&wire.HasSACK != 0 {
		a.SACK, a.NSACK = s.Opt.SACK, int(s.Opt.NSACK)
	}
	c.ecn.feedback(c, s, &a)
	res := c.tx.Ack(&a, now)
	c.ecn.onLossResult(&res)
	if res.DupAck {
		c.n.DupAcks++
	}
	if res.NewlyAcked > 0 {
		c.una = c.tx.Una()
		c.events |= Acked
		c.pmtu.onAck(c, now)
	}
	c.startPersistIfBlocked(now)
	if res.FINAcked {
		c.ourFINAcked(now)
	}
}

// startPersistIfBlocked starts window probes when nothing is in flight and the window blocks the Source.
func (c *Conn) startPersistIfBlocked(now tick.Time) {
	if c.una == c.nxt && c.timer.zeroSince != tick.Never && c.hasMore &&
		c.timer.persist == tick.Never {
		c.onWindowBlocked(now)
	}
}

// ourFINAcked changes the state when our FIN is acknowledged.
func (c *Conn) ourFINAcked(now tick.Time) {
	c.fin = finAcked
	c.events |= FINAcked
	c.timer.linger = tick.Never
	c.enter(finAcknowledged)
	switch c.state {
	case FinWait2:
		c.boundFinWait2(now)
	case TimeWait:
		c.startTimeWait(now)
	case Closed:
		c.enterClosed(CauseClosed)
	}
}

// boundFinWait2 limits the time in FIN-WAIT-2 if Detach was called.
func (c *Conn) boundFinWait2(now tick.Time) {
	if c.detached {
		c.timer.wait = now.Add(c.cfg.FinWait2)
	}
}
