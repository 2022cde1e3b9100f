package cc

import "xwarp/tcp/tick"

// hystart is the state of HyStart++ (RFC 9406, 4.2), which leaves the first slow start when the round trip grows,
// before the queue of the bottleneck overflows.
type hystart struct {
	on      bool
	inCSS   bool
	rounds  int
	samples int
	last    tick.Duration // least round trip of the last round, 0 for none
	current tick.Duration // least round trip of this round, 0 for none
	base    tick.Duration // least round trip when conservative slow start began
}

func (h *hystart) onAck(c *Controller, a *Ack) {
	if a.Round {
		h.newRound(c)
	}
	if a.RTT > 0 {
		if h.current == 0 || a.RTT < h.current {
			h.current = a.RTT
		}
		h.samples++
	}
	if h.samples < hystartSamples {
		return
	}
	if h.inCSS {
		if h.current < h.base { // the rise was noise: back to slow start
			h.inCSS = false
			h.base = 0
		}
		return
	}
	if h.last == 0 {
		return
	}
	thresh := min(max(h.last/hystartDivisor, hystartMinThresh), hystartMaxThresh)
	if h.current >= h.last+thresh {
		h.base = h.current
		h.inCSS = true
		h.rounds = 0
	}
}

func (h *hystart) newRound(c *Controller) {
	h.last, h.current, h.samples = h.current, 0, 0
	if !h.inCSS {
		return
	}
	h.rounds++
	if h.rounds >= cssRounds {
		h.inCSS = false
		c.ssthresh = c.cwnd
	}
}
