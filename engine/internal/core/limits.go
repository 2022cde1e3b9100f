package core

import "time"

// These limits bound the work of one turn that programs and peers can cause. The rest waits for the next turn, so that
// frames and requests of others never wait for more than one turn.
const (
	// requestsPerTurn is the maximum number of work requests that a worker takes in one turn, some 0.2 ms.
	// requestsPerVisit is the maximum from one queue pair before the next owner has its turn. Requests that are
	// refused, or that send nothing, complete at once: without a limit a program could post them as fast as they are
	// taken.
	requestsPerTurn  = 1024
	requestsPerVisit = 256
	// mailPerTurn is the maximum number of posted functions that a worker runs in one turn. Programs post them when
	// they create and destroy objects, and other workers post frames. The functions differ: one hands over a frame,
	// another flushes a queue of 16,384 requests. Therefore the worker starts none after mailTime either.
	mailPerTurn = 64
	mailTime    = 200 * time.Microsecond
	// StepsPerTurn is the maximum number of connections on sockets that a worker steps in one turn; each step reads and
	// writes once.
	StepsPerTurn = 16
)
