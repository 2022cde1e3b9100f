package control

import "time"

// Version and limits of the protocol.
const (
	// Version is the version of the protocol. The daemon refuses programs with any other version.
	Version = 7
	// MaxRequest is the maximum length of a request body in bytes, which the daemon buffers before it parses it.
	MaxRequest = 64 << 10
	// maxNesting is the maximum nesting of objects and lists in a request, because the parser's stack grows with it.
	// The deepest request, a capture with flows, has four levels.
	maxNesting = 8
	// MaxReply is the maximum length of the body of a reply or event in bytes; snapshots are the longest.
	MaxReply = 64 << 20
	// MaxFiles limits the descriptors of one message, so that a client cannot fill the daemon's table.
	MaxFiles = 2
	// MaxPending limits the pending requests of a client, because each has a goroutine.
	MaxPending = 256
	// MaxDepth is the maximum number of entries of each work queue of a queue pair and of a shared receive queue,
	// MaxCQDepth that of a completion queue. The daemon needs memory for each entry.
	MaxDepth   = 8192
	MaxCQDepth = 1 << 18
	// MaxRegion is the maximum length of a memory region in bytes.
	MaxRegion = 1 << 40
	// MaxOffset is the maximum offset of a region in a memfd: programs use 47-bit addresses as offsets.
	MaxOffset = 1 << 47
	// MaxBacklog limits the backlog of a listener, and the connection requests that a session has got and not answered.
	MaxBacklog = 1024
	// MaxPatience is the maximum time, in milliseconds, to retry a connect to a port that refuses it: the peer
	// must answer each attempt with a RST.
	MaxPatience = 1000
	// MaxResolve is the maximum time, in milliseconds, that a request waits for a next hop.
	MaxResolve = 600_000
	// WriteTimeout is how long a client may leave replies unread before it is dropped.
	WriteTimeout = 5 * time.Second
)
