package daemon

import (
	"time"
)

// Limits, each with what it stops.
const (
	// stopWait bounds each step after the grace when the daemon ends. Then the end goes on without that step.
	stopWait = 300 * time.Millisecond
	// refusals is the number of refused programs that may wait for the close of descriptors that they sent.
	refusals = 256
	// reopenPause and reopenMost are the least and the longest time between attempts to open a device again.
	reopenPause = time.Second
	reopenMost  = 30 * time.Second
)
