package xdp

import "xwarp/tcp/tick"

// clockSkip decides in which idle turns the worker reads the clock. A reading costs more than everything else in such a
// turn.
type clockSkip struct {
	last    tick.Time // the last reading
	skipped int       // number of turns since then
	most    int       // maximum of skipped
}

const (
	maxSkip = 16                   // turns
	maxLate = 1 * tick.Microsecond // approximate maximum lateness of a timer; turns with a consumer differ in length
)

// skip reports whether this turn may do without the time.
func (p *clockSkip) skip() bool {
	p.skipped++
	return p.skipped <= p.most
}

// read records a reading of the clock, and adapts the number of turns to skip.
func (p *clockSkip) read(now tick.Time) {
	switch {
	case now.Sub(p.last) > maxLate:
		p.most /= 2
	case p.skipped > p.most: // the limit ended the skipping
		p.most = min(p.most+1, maxSkip)
	}
	p.last, p.skipped = now, 0
}
