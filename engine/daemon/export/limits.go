package export

import (
	"time"
)

const (
	// queueDepth is the depth of the queues of a connection. They carry flush requests only.
	queueDepth = 16
	// reopenPause and reopenMost are the minimum and maximum interval of attempts to open a waiting export.
	reopenPause = time.Second
	reopenMost  = 30 * time.Second
)
