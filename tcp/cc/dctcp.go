package cc

// updateAlpha counts acknowledged and marked bytes and updates alpha once per round trip (RFC 8257, 3.3 steps 1
// to 8, with 4.2's arithmetic).
func (c *Controller) updateAlpha(a *Ack) {
	c.acked += a.Acked
	c.marked += min(max(a.Marked, 0), a.Acked)
	if !a.Round || c.acked == 0 {
		return
	}
	m := dctcpOne * c.marked / c.acked
	if c.alpha>>dctcpShift == 0 {
		c.alpha = 0
	}
	c.alpha = min(c.alpha+m>>dctcpShift-c.alpha>>dctcpShift, dctcpOne)
	c.acked, c.marked = 0, 0
}
