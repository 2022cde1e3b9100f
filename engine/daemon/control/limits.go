package control

import "time"

// Limits of the protocol, each with what it stops.
const (
	// Version is the protocol's. A daemon takes exactly the versions that it knows.
	Version = 7
	// MaxRequest is the longest body of a request in bytes: what a client makes the daemon keep before it is
	// looked at.
	MaxRequest = 64 << 10
	// MaxReply is the longest body of a reply or event; a snapshot is the longest there is.
	MaxReply = 64 << 20
	// MaxFiles bounds the descriptors of one message: a client could fill the daemon's table with them.
	MaxFiles = 2
	// MaxPending bounds the requests of one client that wait for something: each has a goroutine.
	MaxPending = 256
	// MaxDepth bounds the work queues of a queue pair and shared receive queues, and MaxCQDepth a
	// completion queue: the daemon allocates for them.
	MaxDepth   = 8192
	MaxCQDepth = 1 << 18
	// MaxRegion is the longest memory region in bytes.
	MaxRegion = 1 << 40
	// MaxOffset is where in a memfd a region may begin: programs use addresses, which have 47 bits,
	// as offsets.
	MaxOffset = 1 << 47
	// MaxBacklog bounds the connection requests that wait for one listener's client.
	MaxBacklog = 1024
	// MaxPatience bounds in milliseconds how long a connect to a port that refuses is tried again:
	// each attempt costs the peer a reset.
	MaxPatience = 1000
	// MaxResolve bounds in milliseconds how long a program waits for a next hop, and has one of its requests waiting.
	MaxResolve = 600_000
	// WriteTimeout is how long a client may leave replies unread: after it the client is gone.
	WriteTimeout = 5 * time.Second
)
