package tcp

import "xwarp/tcp/tick"

// ackHold is the wait of an acknowledgement for more segments that it may cover (Config.AckHold), as receive
// offload in a kernel waits for a batch. It ends with StretchAck segments, with PSH, when an acknowledgement
// is owed for any other reason, or when the time is over. A wait during which the stream paused was for
// nothing: then some acknowledgements do not wait, twice as many after each such wait, until one pays again.
type ackHold struct {
	on    bool
	last  tick.Time // when the last segment arrived that waits
	skip  int       // acknowledgements that do not wait
	after int       // what skip will be after the next wait for nothing
}

// begin reports whether the acknowledgement of what is in order now waits.
func (h *ackHold) begin(c *Conn, now tick.Time) bool {
	wait := c.cfg.AckHold
	if wait <= 0 || c.now.push {
		return false
	}
	if h.skip > 0 {
		h.skip--
		return false
	}
	if c.rcvNxt.Diff(c.ackedTo)+c.rcvMSS > c.cfg.StretchAck*c.rcvMSS {
		h.after = 0
		return false
	}
	h.last = now
	if !h.on {
		h.on = true
		c.timer.delack = min(c.timer.delack, now.Add(wait))
	}
	return true
}

// expired ends a wait that took the whole time.
func (h *ackHold) expired(c *Conn, now tick.Time) {
	if !h.on {
		return
	}
	if now.Sub(h.last) > c.cfg.AckHold/2 {
		h.after = min(max(2*h.after, c.cfg.StretchAck/4), maxHoldSkip)
		h.skip = h.after
	}
}
