package daemon

import (
	"time"
)

// Limits of the daemon.
const (
	// stopWait is the maximum time of each step of a shutdown after the grace period. The shutdown then continues
	// without waiting for that step.
	stopWait = 300 * time.Millisecond
	// closeWait replaces stopWait for closing the devices: the kernel takes its time to close sockets, and a NIC may
	// restart its link when its settings are restored.
	closeWait = 3 * time.Second
	// controlBacklog is the number of programs that may wait for accept on a socket. The kernel lowers it to somaxconn.
	controlBacklog = 4096
	// maxPendingRefusals is the number of refused programs whose connections may wait to be closed. Closing one closes
	// descriptors that the program sent, which can block.
	maxPendingRefusals = 256
	// reopenPause and reopenPauseMax are the minimum and maximum interval between attempts to reopen a device or
	// to open the HTTP server.
	reopenPause    = time.Second
	reopenPauseMax = 30 * time.Second
	// maxLogBacklog is the maximum number of bytes of log lines that wait for the reader of the log. A stalled reader
	// must not fill the memory.
	maxLogBacklog = 1 << 20
)
