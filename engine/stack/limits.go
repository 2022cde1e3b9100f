package stack

import "xwarp/tcp/tick"

// Every bound of this package, each with what it stops.
const (
	// MaxBatch is how many frames are received before anything is sent, because more would delay acknowledgements,
	// fewer would cost a system call for less.
	MaxBatch = 64
	// MaxFramesPerVisit is how many frames one connection sends before the next one's turn, unless the port
	// wants longer runs and there is room in the round.
	MaxFramesPerVisit = 64
	// MaxFramesPerRound is how many frames all connections send before the next batch is received: while thousands of
	// connections have something to send, their acknowledgements would overflow the receive ring.
	MaxFramesPerRound = 128
	// MinBlock is the fewest segments that leave as a block where the port takes blocks, MinBlockShort of
	// short ones, and between them it is MinBlock + MinBlockBytes / length: fewer cost more than they save.
	// Measured on veth: 3 of 8948 bytes, 5 of 1448.
	MinBlock      = 3
	MinBlockShort = 8
	MinBlockBytes = 4096
	// MinMTU is IPv4's smallest with room for a segment (RFC 791), MaxMTU the largest IP packet.
	MinMTU = 576
	MaxMTU = 65535
	// MaxEndpoints bounds the connections of a stack against exhaustion of memory.
	MaxEndpoints = 65536
	// MaxAccepted is how many connections of one listener there may be unless it says otherwise: half of a
	// worker's table is left for the others.
	MaxAccepted = MaxEndpoints / 2
	// MaxStartup is how many connections of one listener the layer above may not have confirmed yet, unless
	// it says otherwise: those of peers that say nothing after their handshake. One more ends the eldest, for
	// those that mean it are confirmed within moments. What each peer and network may have of them is in
	// package budget.
	MaxStartup = 4096
	// KeepaliveIdle is after how much silence a peer is asked whether it is still there when the
	// configuration says nothing (RFC 9293, MUST-28: two hours). Without it connections of peers that are
	// gone for ever would stay for ever.
	KeepaliveIdle = 120 * tick.Minute
	// ChallengesPerSecond is the budget of challenge ACKs of a worker (RFC 5961, 7).
	ChallengesPerSecond = 1000
	// MaxHops bounds the next hops without a connection, which segments from made-up sources have asked for:
	// the one wanted the longest time ago goes. MaxHopsOfNetwork is the share of one network (IPv4 /24, IPv6
	// /64), which whoever is on it can fill with addresses that nobody has.
	MaxHops          = 4096
	MaxHopsOfNetwork = 256
	// HopIdle is how long an unused next hop is kept, so that the next connection can begin with it.
	HopIdle = tick.Minute
	// MaxHeld bounds the segments that wait for a next hop, and MaxHeldOfHop those that wait for the same: as
	// many answers to SYNs of one peer as are made before the kernel knows its Ethernet address.
	MaxHeld      = 8192
	MaxHeldOfHop = 64
	// HopRetry is the shortest pause between two requests to confirm a next hop.
	HopRetry = 500 * tick.Millisecond
	// FlushRetry is the first pause after the kernel took less than it was given, FlushRetryMax the longest
	// while it takes nothing, because a link that is down must not cost a processor.
	FlushRetry    = 50 * tick.Microsecond
	FlushRetryMax = 10 * tick.Millisecond
	// StarvedRounds is how many rounds without a free slot and without a frame sent are taken for a device
	// that sends nothing; StarvedRetry is how often it is looked at then.
	StarvedRounds = 1000
	StarvedRetry  = tick.Millisecond
	// closeRounds bounds the attempts to get the last RSTs out.
	closeRounds = 16
)
