package layers

import (
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime is how long the calling thread has run: what others do on the machine counts less than by the clock on the wall.
func cpuTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
