package stack

import "xwarp/tcp/tick"

// Limits, intervals and sizes of a stack, each with its reason.
const (
	// MaxBatch is the maximum number of frames received before anything is sent. More would delay acknowledgements;
	// fewer would cost more system calls.
	MaxBatch = 64
	// MaxFramesPerVisit is the number of frames after which the visit of a connection ends. A block at the end of a
	// visit may exceed it.
	MaxFramesPerVisit = 64
	// MaxFramesPerRound is the number of frames, sent by all connections, after which the next batch is received:
	// otherwise, with thousands of sending connections, acknowledgements would overflow the receive ring.
	MaxFramesPerRound = 128
	// A block has at least MinBlock + MinBlockBytes / length segments of this length; MinBlockShort are always enough.
	// Fewer cost more as a block than they save. Measured on veth: 3 of 8948 bytes, 5 of 1448.
	MinBlock      = 3
	MinBlockShort = 8
	MinBlockBytes = 4096
	// MinMTU is the smallest IPv4 MTU with room for a segment (RFC 791), MaxMTU the largest IP packet.
	MinMTU = 576
	MaxMTU = 65535
	// MaxEndpoints limits the connections of a stack, to prevent memory exhaustion.
	MaxEndpoints = 65536
	// MaxAccepted is the default maximum of connections per listener. It leaves half of a worker's table for the
	// others.
	MaxAccepted = MaxEndpoints / 2
	// MaxStartup is the default maximum of connections per listener that the upper layer has not confirmed: those of
	// peers that stay silent after the handshake. One more ends the oldest, because legitimate ones are confirmed
	// within moments. Package budget limits the shares of peers and networks.
	MaxStartup = 4096
	// KeepaliveIdle is the default idle time before keepalive probes (RFC 9293, MUST-28: two hours). Without probes,
	// connections of dead peers would stay forever.
	KeepaliveIdle = 120 * tick.Minute
	// ChallengesPerSecond is a worker's budget of challenge ACKs (RFC 5961, 7).
	ChallengesPerSecond = 1000
	// MaxHops limits next hops without a connection, which segments with forged sources request: the least recently
	// used one is dropped. MaxHopsOfNetwork is the maximum for one network (IPv4 /24, IPv6 /64), which any of its hosts
	// can fill with unused addresses.
	MaxHops          = 4096
	MaxHopsOfNetwork = 256
	// HopIdle is how long an unused next hop is kept for the next connection.
	HopIdle = tick.Minute
	// MaxHeld limits the segments that wait for a next hop, MaxHeldOfHop those that wait for the same one: enough
	// answers to SYNs of one peer until the kernel knows its MAC address.
	MaxHeld      = 8192
	MaxHeldOfHop = 64
	// HopRetry is the minimum interval between two requests to confirm a next hop.
	HopRetry = 500 * tick.Millisecond
	// FlushRetry is the first pause after the kernel did not accept all frames, FlushRetryMax the longest one while it
	// accepts nothing, so that a link that is down does not occupy a CPU.
	FlushRetry    = 50 * tick.Microsecond
	FlushRetryMax = 10 * tick.Millisecond
	// StarvedRounds is the number of consecutive rounds that find no free slot and send no frame, after which the
	// device counts as stuck. StarvedRetry is the interval of retries then.
	StarvedRounds = 1000
	StarvedRetry  = tick.Millisecond
	// closeRounds limits the attempts to send the last RSTs.
	closeRounds = 16
)
