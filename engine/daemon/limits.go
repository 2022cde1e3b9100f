package daemon

import (
	"time"
)

// Limits, each with what it stops.
const (
	// stopWait is how long what follows the grace may take at the end of the daemon, before that goes on without it.
	stopWait = 300 * time.Millisecond
	// refusals is how many refused programs may wait for the close of descriptors that they sent.
	refusals = 256
	// reopenPause and reopenMost are between attempts to open a device again that was lost.
	reopenPause = time.Second
	reopenMost  = 30 * time.Second
)
