package core

import "time"

// Limits of the work per turn that programs and peers can cause. The rest waits for later turns, so that a worker
// receives frames, and serves others, in between.
const (
	// mailPerTurn is the maximum number of posted functions that a worker runs per turn. Programs post them when they
	// create and destroy objects, and other workers post frames. Their cost varies from handing over a frame to
	// flushing a queue of 16,384 requests, so the worker also starts none after mailTime.
	mailPerTurn = 64
	mailTime    = 200 * time.Microsecond
	// StepsPerTurn is the maximum number of connections on sockets that a worker steps in one turn; each step reads and
	// writes once.
	StepsPerTurn = 16
)

// requestLimits limit the work requests that a worker takes. Refused requests, and requests that send nothing, complete
// at once: without a limit a program could post them as fast as they are taken.
type requestLimits struct {
	turn  int // maximum of requests in one turn
	visit int // maximum of requests from one queue pair before the next owner is served
}

var (
	loneLimits = requestLimits{turn: 1024, visit: 256} // a turn takes some 0.2 ms
	// sharedLimits are for workers with queue pairs of several users: each message of one user waits for one turn of
	// the others, some 15 µs.
	sharedLimits = requestLimits{turn: 64, visit: 32}
)

// requestLimits returns the limits for the users of s. It runs on the worker.
func (s *Shard) requestLimits() *requestLimits {
	if len(s.shares) > 1 {
		return &sharedLimits
	}
	return &loneLimits
}
