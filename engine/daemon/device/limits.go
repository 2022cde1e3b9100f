package device

import (
	"time"

	"xwarp/engine/daemon/config"
)

// Limits, each with what it stops.
const (
	// staleLimit is how long a device may fail to follow the kernel's neighbours before the watchdog counts it
	// as stuck: nobody new is connected to then, and only a restart is left. Connections that there are would
	// go on.
	staleLimit = 2 * time.Minute
)

// spareOpenings is how often a daemon that gave its rights up can open an interface again, by the restart policy: for
// each time it makes a socket for each queue in advance, of some 2 KiB. Who removes interfaces more often makes it
// end, and start again.
var spareOpenings = map[string]int{config.RestartReopen: 16}
