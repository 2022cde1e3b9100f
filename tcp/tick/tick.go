// Package tick defines the time that the protocol packages work with. They take it as a parameter and read no clock.
package tick

import "time"

// Time is nanoseconds since an epoch that the caller chooses; it never runs backwards.
type Time int64

// Duration is time.Duration, which the packages above use.
type Duration = time.Duration

// Forever is the Duration of a wait without an end.
const Forever Duration = -1

const (
	Microsecond = time.Microsecond
	Millisecond = time.Millisecond
	Second      = time.Second
	Minute      = time.Minute
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
