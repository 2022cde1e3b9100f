package device

import (
	"time"

	"xwarp/engine/daemon/config"
)

// Limits of a device.
const (
	// staleLimit is how long a device may fail to follow the kernel's tables, such as that of neighbours, before the
	// watchdog restarts the daemon. Meanwhile the device uses the entries that it read last.
	staleLimit = 2 * time.Minute
)

// spareOpenings is how often a daemon without privileges can reopen an interface, by restart policy. For each time, the
// daemon creates one socket per queue in advance, of some 2 KiB. When they are used up, it restarts.
var spareOpenings = map[string]int{config.RestartReopen: 16}
