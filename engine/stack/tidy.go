package stack

import "xwarp/tcp/tick"

// visit is what a round of transmission did with an Endpoint, for tidy.
type visit uint8

const (
	txIdle   visit = iota // nothing since the last tidy
	txPolled              // it was asked, and had nothing to send
	txSent                // it sent
)

// tidy is the part of output that nobody at the other end waits for.
func (e *Endpoint) tidy(now tick.Time) {
	v := e.visit
	if e.visit = txIdle; v == txIdle || e.abandoned {
		return
	}
	e.events(now)
	if v == txSent && e.started {
		e.upper.Settle(now) // making segments may have shown an error
	}
	if e.ended {
		return
	}
	if d := e.deadline(); d != tick.Never {
		e.stack.timers.set(e, d)
	}
}
