package export

import (
	"time"
)

const (
	// queueDepth is the depth of the queues of a connection. They carry flush requests only.
	queueDepth = 16
	// reopenPause and reopenMost are the least and the longest time between attempts to open an export that waits.
	reopenPause = time.Second
	reopenMost  = 30 * time.Second
)
