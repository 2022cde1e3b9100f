package device

import (
	"time"

	"xwarp/engine/daemon/config"
)

// Limits, each with what it stops.
const (
	// staleLimit is how long a device may fail to follow the kernel's neighbours before the watchdog restarts the
	// daemon. Meanwhile established connections go on, and new ones cannot be resolved.
	staleLimit = 2 * time.Minute
)

// spareOpenings is how often a daemon that has dropped its rights can open an interface again, by restart policy. It
// makes a socket of some 2 KiB for each queue and each time in advance. When they are used up the daemon restarts.
var spareOpenings = map[string]int{config.RestartReopen: 16}
