package rping

import "time"

// Limits of rping, and of this package.
const (
	DefaultPort = 7174
	DefaultSize = 64
	// MinSize has room for the text of every iteration, "rdma-ping-2147483647: ", and its final zero.
	MinSize = 23
	// MaxSize is one byte less than 64 KiB: rping refuses 65536, although its message names that number as the limit.
	MaxSize = 1<<16 - 1
	// maxCount is the largest number that fits the text.
	maxCount = 1<<31 - 1

	// maxServed bounds the connections that a persistent server serves at the same time, each with MaxSize bytes and a
	// goroutine; a client beyond it is rejected.
	maxServed = 256
	// maxSilence is how long a connection may be idle while all places are taken; then it is closed.
	maxSilence = 30 * time.Second

	// closeGrace is longer than the engine's own close timeout, after which it resets the connection.
	closeGrace = 10 * time.Second
)
