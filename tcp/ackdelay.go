package tcp

import "xwarp/tcp/tick"

// ackDelay is the wait of an acknowledgement for more segments that it can cover (Config.AckDelay), similar to receive
// offload in a kernel. It ends after StretchAck segments, with PSH, when an acknowledgement is due for another reason,
// or when the time is over. If the stream paused during the wait, the next acknowledgements do not wait. Their number
// doubles after each such wait, until a wait succeeds.
type ackDelay struct {
	waiting     bool
	lastArrival tick.Time // arrival of the last segment whose acknowledgement waits
	skip        int       // number of next acknowledgements that do not wait
	nextSkip    int       // value of skip after the next unsuccessful wait
}

// startWait starts or continues a wait, and reports whether the acknowledgement of in-order bytes must wait.
func (d *ackDelay) startWait(c *Conn, now tick.Time) bool {
	wait := c.cfg.AckDelay
	if wait <= 0 || c.cur.hasPush {
		return false
	}
	if d.skip > 0 {
		d.skip--
		return false
	}
	if c.rcvNxt.Diff(c.ackedTo)+c.rcvMSS > c.cfg.StretchAck*c.rcvMSS {
		d.nextSkip = 0
		return false
	}
	d.lastArrival = now
	if !d.waiting {
		d.waiting = true
		c.timer.delack = min(c.timer.delack, now.Add(wait))
	}
	return true
}

// backOff is called when the timer ends a wait. If the stream had paused meanwhile, the next acknowledgements do not
// wait: twice as many as after the previous such wait.
func (d *ackDelay) backOff(c *Conn, now tick.Time) {
	if !d.waiting {
		return
	}
	if now.Sub(d.lastArrival) > c.cfg.AckDelay/2 {
		d.nextSkip = min(max(2*d.nextSkip, c.cfg.StretchAck/4), maxDelaySkip)
		d.skip = d.nextSkip
	}
}
