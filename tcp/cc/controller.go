package cc

import "xwarp/tcp/tick"

// Controller is the congestion state of one connection, a plain value. Windows are bytes.
type Controller struct {
	cwnd, ssthresh int
	mss, iw, max   int
	abc            int  // bytes counted per acknowledgement in slow start
	count          int  // Reno: bytes acknowledged since the window last grew; CUBIC: growth still due, times cwnd
	cautious       bool // after a timeout an acknowledgement counts at most one segment (RFC 3465, 2.3)
	alg            Algorithm
	noABE, noIdle  bool
	lastAck        tick.Time

	cubic  cubic
	hy     hystart
	alpha  int // DCTCP's estimate in 1/65536
	marked int // DCTCP: marked bytes in this observation window
	acked  int

	saved saved
	stats struct{ losses, marks, timeouts, undos uint32 }
}

// saved is the state that Undo restores.
type saved struct {
	valid          bool
	cwnd, ssthresh int
	count          int
	cubic          cubic
}

// Init prepares c for a new connection.
func (c *Controller) Init(cfg *Config, now tick.Time) {
	*c = Controller{alg: cfg.Algorithm, ssthresh: Infinite, noABE: cfg.NoABE,
		noIdle: cfg.NoIdleRestart, alpha: dctcpOne, lastAck: now}
	c.mss = min(max(cfg.MSS, minMSS), maxMSS)
	c.max = MaxWindow
	if cfg.MaxWindow > 0 {
		c.max = min(MaxWindow, max(cfg.MaxWindow, minSsthresh*c.mss))
	}
	n := cfg.InitialWindow
	if n <= 0 {
		n = initialSegments
	}
	c.iw = min(n, 1000) * c.mss
	c.hy.on = c.alg == CUBIC && !cfg.NoHyStart
	l := cfg.ABCLimit
	switch {
	case l > 0:
	case c.hy.on:
		l = 8
	default:
		l = 2
	}
	c.abc = min(l, 1<<14) * c.mss
	c.setCwnd(c.iw)
}

// SetMSS changes the segment size. The window keeps its size in bytes, but is at least one segment.
func (c *Controller) SetMSS(mss int) {
	old := c.mss
	c.mss = min(max(mss, minMSS), maxMSS)
	c.abc = c.abc / old * c.mss
	c.iw = c.iw / old * c.mss
	c.setCwnd(c.cwnd)
}

// LoseSYN limits the initial window to one segment, because the SYN was lost (RFC 5681, 3.1).
func (c *Controller) LoseSYN() {
	c.iw = c.mss
	c.setCwnd(c.iw)
}

// Cwnd returns the congestion window.
func (c *Controller) Cwnd() int { return c.cwnd }

// Ssthresh returns the slow start threshold, Infinite before the first congestion.
func (c *Controller) Ssthresh() int { return c.ssthresh }

// SetCwnd sets the window, within its limits. With it the caller paces a reduction (RFC 9937).
func (c *Controller) SetCwnd(n int) { c.setCwnd(n) }

func (c *Controller) setCwnd(n int) { c.cwnd = min(max(n, c.mss), c.max) }

// OnAck processes an acknowledgement. The window grows only if a.Grow and a.Limited: a window that the sender did not
// fill is not tested, and must not grow (RFC 7661, 4.3).
func (c *Controller) OnAck(a *Ack) {
	if c.alg == DCTCP {
		c.updateAlpha(a)
	}
	if c.hy.on && c.ssthresh == Infinite {
		c.hy.onAck(c, a)
	}
	idle := a.Now.Sub(c.lastAck)
	c.lastAck = a.Now
	if !a.Grow || a.Acked <= 0 {
		return
	}
	if !a.Limited {
		c.cubic.shiftEpoch(idle)
		return
	}
	n := a.Acked
	if c.cwnd < c.ssthresh {
		n = c.slowStart(n)
	}
	if n <= 0 || c.cwnd < c.ssthresh {
		return
	}
	if c.alg == CUBIC {
		c.growCubic(n, a.Now, a.SRTT)
		return
	}
	// RFC 5681, 3.1: one segment for each window acknowledged.
	c.count += min(n, c.cwnd)
	if c.count >= c.cwnd {
		c.count -= c.cwnd
		c.setCwnd(c.cwnd + c.mss)
	}
}

// slowStart grows the window by at most n bytes, up to ssthresh, and returns the bytes left for congestion avoidance.
func (c *Controller) slowStart(n int) int {
	limit := c.abc
	if c.cautious {
		limit = c.mss
	}
	n = min(n, limit)
	if c.hy.inCSS {
		n /= cssGrowth
	}
	grown := min(n, c.ssthresh-c.cwnd)
	c.setCwnd(c.cwnd + grown)
	return n - grown
}

// Save saves the state before a reduction, so that Undo can restore it.
func (c *Controller) Save() {
	c.saved = saved{true, c.cwnd, c.ssthresh, c.count, c.cubic}
}

// OnLoss sets ssthresh for a loss found by acknowledgements while flight bytes were outstanding. The caller
// brings the window down to it.
func (c *Controller) OnLoss(flight int) {
	c.stats.losses++
	n, d := c.lossFactor()
	c.reduce(c.reductionBase(flight), n, d)
}

// OnECN sets ssthresh for a congestion mark that was reported while flight bytes were outstanding. The caller calls it
// at most once per round trip.
func (c *Controller) OnECN(flight int) {
	c.stats.marks++
	switch {
	case c.alg == DCTCP:
		// RFC 8257, 3.3 step 9: cwnd * (1 - alpha/2).
		c.reduce(c.cwnd, 2*dctcpOne-c.alpha, 2*dctcpOne)
	case c.noABE:
		n, d := c.lossFactor()
		c.reduce(c.reductionBase(flight), n, d)
	case c.alg == CUBIC:
		c.reduce(c.reductionBase(flight), 17, 20) // RFC 8511, 3.1: 0.85
	default:
		c.reduce(c.reductionBase(flight), 8, 10) // RFC 8511, 3.1: 0.8
	}
}

// OnTimeout reduces the window to one segment, the loss window. It sets ssthresh if first. Otherwise the same bytes
// timed out before, and ssthresh stays (RFC 5681, 3.1). CUBIC computes ssthresh from the window even if fewer bytes
// were outstanding, because the loss of a lone segment does not show how much the path carries. RFC 9438, 4.6 permits
// this for a window that grows only while it is full.
func (c *Controller) OnTimeout(flight int, first bool) {
	c.stats.timeouts++
	if first {
		if c.alg == CUBIC {
			flight = c.cwnd
		}
		n, d := c.lossFactor()
		c.reduce(c.reductionBase(flight), n, d)
	}
	c.cautious = true
	c.count = 0
	c.setCwnd(c.mss)
}

// Recovered ends the limit that OnTimeout began: an acknowledgement counts up to ABCLimit segments again.
func (c *Controller) Recovered() { c.cautious = false }

// OnIdle is called when nothing was sent for the time idle. Unless Config.NoIdleRestart is set, it halves the window
// once for each rto, down to the restart window (RFC 2861, 3.2; RFC 5681, 4.1).
func (c *Controller) OnIdle(idle, rto tick.Duration) {
	c.cubic.shiftEpoch(idle)
	c.lastAck = c.lastAck.Add(idle)
	if c.noIdle || rto <= 0 || idle < rto {
		return
	}
	restart := min(c.iw, c.cwnd)
	if c.ssthresh != Infinite {
		c.ssthresh = max(c.ssthresh, c.cwnd/4*3)
	}
	c.setCwnd(max(restart, c.cwnd>>min(idle/rto, idleHalvings)))
}

// Undo reverts the reductions since Save, if there were any. It restores the window up to flight plus one burst, which
// is the larger of acked and the initial window; slow start restores the rest (RFC 4015, 3.4).
func (c *Controller) Undo(flight, acked int) {
	if !c.saved.valid {
		return
	}
	s := c.saved
	c.saved.valid = false
	c.stats.undos++
	c.cautious = false
	c.ssthresh, c.count, c.cubic = s.ssthresh, s.count, s.cubic
	safe := max(c.cwnd, flight+max(acked, c.iw))
	if safe < s.cwnd {
		c.ssthresh = max(s.ssthresh, s.cwnd)
	}
	c.setCwnd(max(c.cwnd, min(safe, s.cwnd)))
}

// PacingRate returns the rate in bytes per second, 0 if srtt is 0: the window per round trip, times 2 while the window
// is below half of ssthresh, times 1.2 otherwise.
func (c *Controller) PacingRate(srtt tick.Duration) int {
	if srtt <= 0 {
		return 0
	}
	w := c.cwnd / 5 * 6
	if c.cwnd < c.ssthresh/2 {
		w = c.cwnd * 2
	}
	return max(1, w*int(tick.Second)/int(srtt))
}

// State returns the state for display.
func (c *Controller) State() State {
	p := Avoidance
	switch {
	case c.cwnd < c.ssthresh && c.hy.inCSS:
		p = Conservative
	case c.cwnd < c.ssthresh:
		p = SlowStart
	}
	s := State{Algorithm: c.alg, Phase: p, Cwnd: c.cwnd, Ssthresh: c.ssthresh, WMax: c.cubic.wmax,
		K:      c.cubic.timeToMax(),
		Losses: c.stats.losses, Marks: c.stats.marks, Timeouts: c.stats.timeouts,
		Undos: c.stats.undos}
	if c.alg == DCTCP {
		s.Alpha = c.alpha
	}
	return s
}

func (c *Controller) lossFactor() (n, d int) {
	if c.alg == CUBIC {
		return 7, 10 // RFC 9438, 4.6
	}
	return 1, 2
}

// reductionBase returns the number of bytes that a reduction starts from: the window if it was full, else the flight,
// the outstanding bytes (RFC 5681, 3.1; RFC 7661, 4.4.1).
func (c *Controller) reductionBase(flight int) int {
	if flight+c.mss >= c.cwnd {
		return c.cwnd
	}
	return flight
}

func (c *Controller) reduce(basis, n, d int) {
	c.cubic.onCongestion(c.cwnd)
	c.count = 0
	c.hy.inCSS = false
	c.ssthresh = max(basis*n/d, minSsthresh*c.mss)
}

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
