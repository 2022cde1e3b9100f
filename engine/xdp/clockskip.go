package xdp

import "xwarp/tcp/tick"

// clockSkip says on which of the turns that find nothing the clock is read, for timers and for what the device
// does by itself: a reading costs more than all else that such a turn does.
type clockSkip struct {
	last    tick.Time // of the last reading
	skipped int       // turns since then
	most    int       // of them
}

const (
	maxSkip = 16                   // turns
	maxLate = 1 * tick.Microsecond // about as much as a timer may be late; a consumer makes turns longer or shorter
)

// skip reports whether this turn may go without the time.
func (p *clockSkip) skip() bool {
	p.skipped++
	return p.skipped <= p.most
}

// read takes each reading of the clock.
func (p *clockSkip) read(now tick.Time) {
	switch {
	case now.Sub(p.last) > maxLate:
		p.most /= 2
	case p.skipped > p.most: // the skipped turns are what took the time
		p.most = min(p.most+1, maxSkip)
	}
	p.last, p.skipped = now, 0
}
