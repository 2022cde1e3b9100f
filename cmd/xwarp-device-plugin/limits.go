package main

import "time"

const (
	// pace is the polling interval of the daemon and of the kubelet's socket.
	pace = 2 * time.Second
	// replyTimeout is the timeout of replies of the daemon and of the kubelet.
	replyTimeout = 10 * time.Second
)
