package budget

import (
	"time"

	"golang.org/x/time/rate"

	"xwarp/tcp/tick"
)

// adjust returns a limiter of perSecond, of which a second's worth may come at once; nil for 0, which is no limit. It
// is l as long as the rate stays the same.
func adjust(l *rate.Limiter, perSecond int) *rate.Limiter {
	switch {
	case perSecond == 0:
		return nil
	case l == nil || l.Burst() != perSecond:
		return rate.NewLimiter(rate.Limit(perSecond), perSecond)
	}
	return l
}

// wallTime is a time of the caller's clock as package rate takes it.
func wallTime(t tick.Time) time.Time { return time.Unix(0, int64(t)) }
