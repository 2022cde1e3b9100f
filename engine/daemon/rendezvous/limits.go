package rendezvous

import "time"

// Limits and times of the rendezvous.
const (
	// HoldTime is how long a peer's request waits for the queue pair that it names to reach RTR. Requests without a
	// match are refused after the same time, so that the delay reveals nothing to an attacker who guesses QPNs.
	HoldTime = time.Second
	// MaxHeld bounds the waiting requests, MaxHeldOfPeer those of one address. Each is a connection in MPA start-up. So
	// an attacker who sends requests for unknown QPNs cannot lock out other peers.
	MaxHeld       = 1024
	MaxHeldOfPeer = 256
	// RestTime is how long the number of a destroyed queue pair is not reused: a peer that still has the number must
	// not reach another program's queue pair.
	RestTime = time.Minute
	// MaxResting bounds the resting numbers: a program that keeps creating and destroying queue pairs would otherwise
	// exhaust memory or numbers. Beyond it, the number that has rested longest is reused.
	MaxResting = 1 << 18
	// Backlog is the maximum number of connection requests to one local address that wait until the daemon accepts
	// them.
	Backlog = 1024
	// FirstPause and LongestPause bound the pause between attempts to reach a peer whose queue pair is not in RTR. The
	// pause doubles, so a peer that never reaches RTR costs one connection per LongestPause.
	FirstPause   = 10 * time.Millisecond
	LongestPause = time.Second
	// RNRGrace is the minimum time for a peer to post a receive for a message, also with an rnr_retry of 0: the receive
	// may already be in shared memory while the peer's daemon waits for a CPU.
	RNRGrace = 20 * time.Millisecond
	// AttemptTime is how long an attempt may take: TCP retransmits a lost SYN after one second. An attempt that ends
	// just as the peer answers leaves the peer with a half-open connection.
	AttemptTime = 3 * time.Second
	// MeetGrace is the minimum time that two queue pairs have to connect, even if the timeout that their program set is
	// shorter. With InfiniBand no connection is needed, and perftest's timeout is half a second; a daemon that waits
	// for a CPU would miss it.
	MeetGrace = 4 * time.Second
)
