// Package tick is time as the protocol packages see it: a parameter, never a clock.
package tick

// Time is nanoseconds since an epoch that the caller chooses; it never runs backwards.
type Time int64

// Duration is a span in nanoseconds.
type Duration int64

const (
	Nanosecond  Duration = 1
	Microsecond          = 1000 * Nanosecond
	Millisecond          = 1000 * Microsecond
	Second               = 1000 * Millisecond
	Minute               = 60 * Second
)

// Never is a deadline that no timer reaches.
const Never Time = 1<<63 - 1

// Add returns t moved by d, or Never if t is Never.
func (t Time) Add(d Duration) Time {
	if t == Never {
		return Never
	}
	return t + Time(d)
}

// Sub returns the span from o to t.
func (t Time) Sub(o Time) Duration { return Duration(t - o) }
