package core

import "time"

// These limits bound the work of one turn that programs and peers can cause. The rest waits for the next turn, so that
// frames and requests of others never wait for more than one turn.
const (
	// mailPerTurn is the maximum number of posted functions that a worker runs in one turn. Programs post them when
	// they create and destroy objects, and other workers post frames. The functions differ: one hands over a frame,
	// another flushes a queue of 16,384 requests. Therefore the worker starts none after mailTime either.
	mailPerTurn = 64
	mailTime    = 200 * time.Microsecond
	// StepsPerTurn is the maximum number of connections on sockets that a worker steps in one turn; each step reads and
	// writes once.
	StepsPerTurn = 16
)

// requestLimits bound the work requests that a worker takes. Requests that are refused, or that send nothing, complete
// at once: without a limit a program could post them as fast as they are taken.
type requestLimits struct {
	turn  int // in one turn
	visit int // from one queue pair before the next owner has its turn
}

var (
	loneLimits = requestLimits{turn: 1024, visit: 256} // some 0.2 ms
	// sharedLimits are for workers with queue pairs of several users: each message of one user waits for a turn of the
	// others, some 15 µs.
	sharedLimits = requestLimits{turn: 64, visit: 32}
)

// requestLimits returns the limits for the users that s has. It runs on the worker.
func (s *Shard) requestLimits() *requestLimits {
	if len(s.shares) > 1 {
		return &sharedLimits
	}
	return &loneLimits
}
