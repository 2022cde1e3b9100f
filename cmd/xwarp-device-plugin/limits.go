package main

import "time"

const (
	// pace is the time between two looks at the daemon and at the kubelet's socket.
	pace = 2 * time.Second
	// replyTimeout is how long an answer of the daemon or of the kubelet may take before it counts as none.
	replyTimeout = 10 * time.Second
)
