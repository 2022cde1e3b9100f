package loss

import (
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// estimator is RFC 6298's round trip estimation, with two differences, as in Linux. RTTVAR follows the largest
// deviation in each round trip: with one sample per segment it would otherwise decay within a fraction of a round trip.
// And MinRTO is the minimum of 4*RTTVAR, not of the RTO, so that the RTO always exceeds the round trip by MinRTO.
type estimator struct {
	s8        tick.Duration // 8 * SRTT
	dev4      tick.Duration // 4 * mean deviation
	devMax    tick.Duration // largest dev4 in this round trip, at least min
	var4      tick.Duration // 4 * RTTVAR
	roundEnd  seq.Num
	rto       tick.Duration // without back-off
	min, max  tick.Duration
	shift     int           // doublings by back-off (RFC 6298, 5.5), until the next sample (Karn)
	retries   int           // timeouts without new data acknowledged
	fresh     bool          // a sample was taken since the last tail loss probe
	minNow    tick.Duration // least round trip in this half of the window and in the half before; 0 for none
	minBefore tick.Duration
	rotated   tick.Time
	stalled   tick.Time // time of the first of the timeouts that retries counts
	spurious  bool      // RFC 4015, step 11 applies to the first sample after newData
	newData   seq.Num   // the first unsent byte when the timeout was found to be spurious
}

func (e *estimator) init(cfg *Config, now tick.Time) {
	e.min = orDefault(cfg.MinRTO, DefaultMinRTO)
	e.max = max(orDefault(cfg.MaxRTO, DefaultMaxRTO), e.min)
	e.rto = min(max(orDefault(cfg.InitialRTO, DefaultInitialRTO), e.min), e.max)
	e.fresh = true
	e.rotated = now
}

func (e *estimator) srtt() tick.Duration   { return e.s8 >> 3 }
func (e *estimator) rttvar() tick.Duration { return e.var4 >> 2 }

// sample adds the measurement r. una and nxt delimit the current round trip.
func (e *estimator) sample(r tick.Duration, una, nxt seq.Num) {
	r = max(r, 1)
	e.fresh = true
	e.shift = 0
	if e.s8 == 0 {
		e.s8 = r << 3
		e.dev4 = r << 1
		e.devMax = max(e.dev4, e.min)
		e.var4 = e.devMax
		e.roundEnd = nxt
	} else {
		e.update(r, una, nxt)
	}
	if e.spurious && e.newData.Less(una) {
		// RFC 4015, step 11: the delay that made the timeout spurious may last.
		e.spurious = false
		e.s8 = max(e.s8, r<<3)
		e.var4 = max(e.var4, r<<1)
	}
	e.rto = min(e.srtt()+max(e.var4, e.min), e.max)
}

func (e *estimator) update(r tick.Duration, una, nxt seq.Num) {
	d := r - e.s8>>3
	e.s8 += d
	switch {
	case d < 0:
		d = -d - e.dev4>>2
		if d > 0 {
			d >>= 3 // a shorter round trip does not call for a longer timeout
		}
	default:
		d -= e.dev4 >> 2
	}
	e.dev4 += d
	if e.dev4 > e.devMax {
		e.devMax = e.dev4
		e.var4 = max(e.var4, e.devMax)
	}
	if e.roundEnd.Less(una) {
		if e.devMax < e.var4 {
			e.var4 -= (e.var4 - e.devMax) >> 2
		}
		e.roundEnd = nxt
		e.devMax = e.min
	}
}

// updateMin updates the least round trip of the last five minutes with r. The window consists of two halves.
func (e *estimator) updateMin(r tick.Duration, now tick.Time) {
	if now.Sub(e.rotated) > minRTTHalf {
		e.minBefore, e.minNow = e.minNow, 0
		e.rotated = now
	}
	if e.minNow == 0 || r < e.minNow {
		e.minNow = max(r, 1)
	}
}

// minRTT returns the least round trip, 0 before the first sample.
func (e *estimator) minRTT() tick.Duration {
	if e.minBefore != 0 && (e.minNow == 0 || e.minBefore < e.minNow) {
		return e.minBefore
	}
	return e.minNow
}

// backedOff returns base, doubled for each timeout that shift counts, at most max.
func (e *estimator) backedOff(base tick.Duration) tick.Duration {
	return min(base<<min(e.shift, maxBackoff), e.max)
}

// TSVal returns the timestamp to send at now, 0 without timestamps.
func (c Clock) TSVal(now tick.Time) uint32 {
	if c.Tick <= 0 {
		return 0
	}
	return c.Offset + uint32(int64(now)/int64(c.Tick))
}

// before reports whether the timestamp echo belongs to a segment sent before t.
func (c Clock) before(echo uint32, t tick.Time) bool { return int32(echo-c.TSVal(t)) < 0 }

// since returns the time since the timestamp echo was sent. It returns false if that time is implausible, or if a unit
// of the clock is longer than the round trip srtt.
func (c Clock) since(echo uint32, now tick.Time, srtt tick.Duration) (tick.Duration, bool) {
	if c.Tick <= 0 || srtt > 0 && c.Tick > srtt {
		return 0, false
	}
	n := int32(c.TSVal(now) - echo)
	if n < 0 || tick.Time(n) > now/tick.Time(c.Tick) {
		return 0, false
	}
	return max(tick.Duration(n), 1) * c.Tick, true
}
