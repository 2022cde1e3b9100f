package stack

import "xwarp/tcp/tick"

// visit says what tidy has to do.
type visit uint8

const (
	visitedNot visit = iota
	visited
	visitedSent
)

// tidy is the part of output that nobody at the other end waits for.
func (e *Endpoint) tidy(now tick.Time) {
	v := e.visit
	if e.visit = visitedNot; v == visitedNot || e.abandoned {
		return
	}
	e.events(now)
	if v == visitedSent && e.started {
		e.upper.Settle(now) // making segments may have shown an error
	}
	if e.ended {
		return
	}
	if d := e.deadline(); d != tick.Never {
		e.stack.timers.set(e, d)
	}
}
