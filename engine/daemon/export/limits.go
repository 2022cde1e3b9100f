package export

import (
	"time"
)

const (
	// queueDepth is the depth of the queues of a connection to an export, which carry flush requests only.
	queueDepth = 16
	// reopenPause and reopenMost are between attempts to open an export that waits.
	reopenPause = time.Second
	reopenMost  = 30 * time.Second
)
