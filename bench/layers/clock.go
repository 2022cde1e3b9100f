package layers

import (
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime is how long the calling thread has run: what others do on the machine counts less than by the clock
// on the wall.
func cpuTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// clockCost is what a span measured with cpuTime has too much: reading the clock takes longer than many
// segments do. It is the least of many, so that no more is taken off than reading costs.
func clockCost() time.Duration {
	least := time.Duration(1 << 62)
	for range 10_000 {
		start := cpuTime()
		if d := cpuTime() - start; d > 0 { // not when the goroutine moved to another thread
			least = min(least, d)
		}
	}
	return least
}
