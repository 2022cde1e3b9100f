package export

import (
	"time"
)

const (
	// queueDepth is the depth of the queues of a connection. They carry flush requests only.
	queueDepth = 16
	// reopenPause and reopenPauseMax are the minimum and maximum interval of attempts to open a waiting export.
	reopenPause    = time.Second
	reopenPauseMax = 30 * time.Second
)
