package tcp

import "xwarp/tcp/tick"

// ackDelay is the wait of an acknowledgement for more segments that it may cover (Config.AckDelay), as receive
// offload in a kernel waits for a batch. It ends with StretchAck segments, with PSH, when an acknowledgement
// is owed for any other reason, or when the time is over. A wait during which the stream paused was for
// nothing: then some acknowledgements do not wait, twice as many after each such wait, until one pays again.
type ackDelay struct {
	waiting     bool
	lastArrival tick.Time // when the last segment arrived that waits
	skip        int       // acknowledgements that do not wait
	nextSkip    int       // what skip will be after the next wait for nothing
}

// startWait reports whether the acknowledgement of what is in order now waits.
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

// onExpired ends a wait that took the whole time.
func (d *ackDelay) onExpired(c *Conn, now tick.Time) {
	if !d.waiting {
		return
	}
	if now.Sub(d.lastArrival) > c.cfg.AckDelay/2 {
		d.nextSkip = min(max(2*d.nextSkip, c.cfg.StretchAck/4), maxDelaySkip)
		d.skip = d.nextSkip
	}
}
