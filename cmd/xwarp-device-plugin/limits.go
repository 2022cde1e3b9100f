package main

import "time"

const (
	// pace is the interval at which the plugin polls the daemon, checks the kubelet's socket, and retries.
	pace = 2 * time.Second
	// replyTimeout is the maximum wait for a reply of the daemon or of the kubelet.
	replyTimeout = 10 * time.Second
)
