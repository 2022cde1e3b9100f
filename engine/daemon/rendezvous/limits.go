package rendezvous

import "time"

// Limits, each with the attack or the exhaustion that it stops.
const (
	// HoldTime is how long a peer's request waits for its queue pair to reach RTR. Every request that matches none is
	// refused after the same time, so that a stranger who tries QPNs learns nothing from the delay.
	HoldTime = time.Second
	// MaxHeld bounds the requests that wait, and MaxHeldOfPeer those of one address: each is a connection in its MPA
	// start-up. A stranger who sends requests for unknown QPNs keeps no one else out with that.
	MaxHeld       = 1024
	MaxHeldOfPeer = 256
	// RestTime is how long the number of a queue pair that is gone is not given to another one: a peer that still
	// has the number must not reach a stranger's queue pair.
	RestTime = time.Minute
	// MaxResting bounds the numbers that rest: a program that makes and destroys queue pairs without end would fill
	// the memory, or take all numbers. Beyond it the number that rested longest is free.
	MaxResting = 1 << 18
	// Backlog is the number of connections in start-up of one address that the daemon has not looked at.
	Backlog = 1024
	// FirstPause and LongestPause are between two attempts to reach a peer whose queue pair is not in RTR: the pause
	// doubles, so that a peer that never gets there costs a connection every LongestPause.
	FirstPause   = 10 * time.Millisecond
	LongestPause = time.Second
	// RNRGrace is the least time in which a peer may post a receive for a message, also with an rnr_retry of 0: the
	// receive may be in shared memory, and the peer's daemon have no processor to look.
	RNRGrace = 20 * time.Millisecond
	// AttemptTime is how long an attempt may take: TCP sends a SYN that was lost again after one second. An attempt
	// that ends as the peer answers leaves the peer connected with nobody.
	AttemptTime = 3 * time.Second
	// MeetGrace is the least time in which queue pairs meet. InfiniBand needs no connection, and perftest's timeout is
	// half a second; a daemon that has to wait for a processor would miss it.
	MeetGrace = 4 * time.Second
)
