package cc

import (
	"math/bits"

	"xwarp/tcp/tick"
)

// cubic is the state of RFC 9438. Windows are bytes; the curve's time counts in 2^-14 s.
type cubic struct {
	wmax    int // window before the last reduction, less after fast convergence
	prior   int // window before the last reduction: from there on est grows like Reno's window
	est     int // W_est, in 1/1024 bytes
	k       int // time from epoch to wmax, in 2^-14 s
	epoch   tick.Time
	started bool // epoch is set
}

const (
	estShift  = 10
	timeShift = 14
)

// onCongestion records a reduction from window w (RFC 9438, 4.6 and 4.7). It ends the current curve.
func (q *cubic) onCongestion(w int) {
	q.prior = w
	if w < q.wmax {
		w = w * 17 / 20 // fast convergence: (1 + 0.7) / 2
	}
	q.wmax = w
	q.started = false
}

// shiftEpoch excludes the time d, in which the window did not limit the sender, from the curve's time (RFC 9438, 5.8).
func (q *cubic) shiftEpoch(d tick.Duration) {
	if q.started && d > 0 {
		q.epoch = q.epoch.Add(d)
	}
}

func (q *cubic) startEpoch(cwnd, mss int, now tick.Time) {
	q.started = true
	q.epoch = now
	q.est = cwnd << estShift
	q.k = 0
	if cwnd >= q.wmax {
		q.wmax = cwnd
		return
	}
	// K = cbrt((wmax - cwnd) / (0.4 mss)) seconds; the radicand is scaled by 2^36, so the root by 2^12.
	q.k = int(cbrt(uint64((q.wmax-cwnd)*5/(2*mss))<<36+uint64((q.wmax-cwnd)*5%(2*mss))<<36/uint64(
		2*mss))) << (timeShift - 12)
}

// window returns W_cubic in bytes at the time d after the epoch.
func (q *cubic) window(d tick.Duration, mss int) int {
	t := maxCubicTime
	if d < 64*tick.Second {
		t = int(d) << timeShift / int(tick.Second)
	}
	t -= q.k
	neg := t < 0
	if neg {
		t = -t
	}
	t = min(t, maxCubicTime)
	cube := (t * t >> timeShift) * t >> timeShift
	delta := cube * 2 / 5 * mss >> timeShift
	if neg {
		return q.wmax - delta
	}
	return min(q.wmax+delta, MaxWindow)
}

func (q *cubic) timeToMax() tick.Duration {
	return tick.Duration(q.k * int(tick.Second) >> timeShift)
}

// growCubic grows the window in congestion avoidance (RFC 9438, 4.2 to 4.5) for n acknowledged bytes.
func (c *Controller) growCubic(n int, now tick.Time, srtt tick.Duration) {
	q := &c.cubic
	if !q.started {
		q.startEpoch(c.cwnd, c.mss, now)
	}
	n = min(n, c.cwnd)
	// W_est grows by alpha segments per window: 3(1-b)/(1+b) = 9/17 until it reaches the window before the
	// reduction, then by 1.
	slope := n * c.mss << estShift / c.cwnd
	if q.est>>estShift < q.prior {
		slope = slope * 9 / 17
	}
	q.est = min(q.est+slope, MaxWindow<<estShift)
	t := now.Sub(q.epoch)
	if est := q.est >> estShift; q.window(t, c.mss) < est {
		if est > c.cwnd {
			c.setCwnd(est)
		}
		return
	}
	target := min(q.window(t+srtt, c.mss), c.cwnd+c.cwnd/2)
	if target <= c.cwnd {
		return
	}
	c.count += (target - c.cwnd) * n
	if c.count >= c.cwnd {
		grow := c.count / c.cwnd
		c.count -= grow * c.cwnd
		c.setCwnd(c.cwnd + grow)
	}
}

// cbrt returns the integer cube root of x.
func cbrt(x uint64) uint64 {
	var y uint64
	for s := (bits.Len64(x) + 2) / 3 * 3; s >= 0; s -= 3 {
		y <<= 1
		if b := 3*y*(y+1) + 1; s < 64 && x>>uint(s) >= b {
			x -= b << uint(s)
			y++
		}
	}
	return y
}
