package tcp

import (
	"xwarp/tcp/loss"
	"xwarp/tcp/tick"
)

// ECNMode is the kind of explicit congestion notification that a connection requests or grants.
type ECNMode uint8

const (
	ECNOff      ECNMode = iota // neither requests nor grants ECN
	ECNPassive                 // grants a peer's request, and makes none
	ECNClassic                 // requests RFC 3168
	ECNAccurate                // requests RFC 9768, falls back to RFC 3168
)

// Config is the configuration of a connection. Conn keeps a copy. A zero field means the default in brackets.
type Config struct {
	// MTU is the largest IP packet of the local link in bytes [1500]. The announced MSS is MTU less the headers, and
	// MTU limits the EMSS.
	MTU  int
	IPv6 bool // IP and TCP headers have 60 bytes instead of 40

	// MSS is the value of the announced MSS option [MTU less headers, RFC 6691].
	MSS int
	// PathMTU is the known MTU of the path, at most MTU [MTU].
	PathMTU int
	// MinPathMTU is the floor below which no ICMP message lowers the path MTU [552 for IPv4, 1280 for IPv6].
	MinPathMTU int
	// Encapsulation is the maximum number of bytes that the layer below TCP adds to a packet [0]. MTU and PathMTU do
	// not include them. The default of MinPathMTU is lower by as many bytes.
	Encapsulation int
	// ProbeMTU enables packetization layer path MTU discovery (RFC 4821): probes above PathMTU up to MTU, and smaller
	// segments when full-sized ones disappear.
	ProbeMTU bool

	NoTimestamps bool // neither request nor grant timestamps (RFC 7323)
	NoSACK       bool
	NoWScale     bool

	// RcvSpace is the initial receive space of the layer above in bytes [64 KiB]. RcvSpaceMax is its maximum, which
	// determines the window scale [RcvSpace].
	RcvSpace    int
	RcvSpaceMax int

	// DelayedAck is the maximum delay of an acknowledgement [40 ms; at most 500 ms, RFC 1122]. Negative: no delay.
	DelayedAck tick.Duration
	// QuickAcks is the number of acknowledgements at the start of a connection that are not delayed [16]. Negative:
	// none.
	QuickAcks int
	// StretchAck is the maximum number of full-sized segments that one acknowledgement covers if they arrived in one
	// batch, between two calls of Poll [2, RFC 5681].
	StretchAck int
	// AckDelay is how long an acknowledgement of fewer segments than StretchAck waits for more segments in a continuous
	// stream. 0: it waits only for the segments of its batch.
	AckDelay tick.Duration

	// TSOffset is added to the timestamp clock. It must be random for each connection (RFC 7323, 5.4). TSTick is the
	// period of the clock [1 ms]. RFC 7323 allows 1 ms to 1 s; with a shorter period timestamps wrap earlier, which
	// weakens PAWS.
	TSOffset uint32
	TSTick   tick.Duration

	ECN ECNMode

	// SYNRetries is the number of SYN retransmissions [8: the last follows after 3 minutes, RFC 9293, MUST-23].
	// SYNACKRetries is the same for the SYN-ACK of a Listener [6: 2 minutes, because the SYN may be forged]. SYNTimeout
	// is the time before the first retransmission [1 s, RFC 6298].
	SYNRetries    int
	SYNACKRetries int
	SYNTimeout    tick.Duration

	// UserTimeout ends a connection whose bytes stay unacknowledged that long [5 min]. Negative: never.
	UserTimeout tick.Duration
	// AnnounceUTO sends the user timeout option (RFC 5482) with the SYN. AdoptUTO replaces UserTimeout by the larger of
	// it and the value of the peer's option, limited to UTOMin and UTOMax.
	AnnounceUTO, AdoptUTO bool

	// KeepaliveIdle is the time without a segment from the peer after which keepalive probes start; 0: no probes.
	// KeepaliveInterval is the time between probes [75 s]. KeepaliveProbes unanswered probes end the connection [9].
	KeepaliveIdle     tick.Duration
	KeepaliveInterval tick.Duration
	KeepaliveProbes   int

	// PersistMax is the longest pause between window probes [60 s]. ZeroWindowTimeout ends a connection whose peer
	// keeps a zero window that long (RFC 6429); 0: never.
	PersistMax        tick.Duration
	ZeroWindowTimeout tick.Duration

	// TimeWait is the time in TIME-WAIT, 2 MSL [60 s]. FinWait2 is the maximum time in FIN-WAIT-2 after Detach [60 s].
	TimeWait tick.Duration
	FinWait2 tick.Duration
	// Linger limits the time from Shutdown to the acknowledgement of our FIN. After it the connection is reset. 0: only
	// UserTimeout limits it.
	Linger tick.Duration

	// MaxHoles limits the number of ranges kept beyond a hole [the constant MaxHoles, which is also the maximum].
	MaxHoles int

	// Loss configures loss recovery and congestion control; Init fills in what the handshake decides.
	Loss loss.Config

	// Budget limits the challenge ACKs of all connections of a worker. nil: only each connection's own limit applies.
	Budget *ChallengeBudget
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// defaults sets zero fields to their defaults and clamps the others to the limits of the RFCs. It is idempotent: the
// connections of a Listener get a Config that has its defaults already.
func (c *Config) defaults() {
	setDefault(&c.MTU, 1500)
	c.MTU = min(max(c.MTU, minMTU), maxMTU)
	setDefault(&c.PathMTU, c.MTU)
	floor := floorMTU4
	if c.IPv6 {
		floor = floorMTU6
	}
	setDefault(&c.MinPathMTU, floor-c.Encapsulation)
	c.MinPathMTU = min(c.MinPathMTU, c.MTU)
	c.PathMTU = min(max(c.PathMTU, c.MinPathMTU), c.MTU)
	setDefault(&c.MSS, c.MTU-c.headers())
	c.MSS = min(max(c.MSS, 1), 65535)
	setDefault(&c.RcvSpace, 64<<10)
	c.RcvSpaceMax = min(max(c.RcvSpaceMax, c.RcvSpace), maxWindow)
	setDefault(&c.DelayedAck, 40*tick.Millisecond)
	c.DelayedAck = min(c.DelayedAck, 500*tick.Millisecond)
	setDefault(&c.QuickAcks, 16)
	c.StretchAck = max(c.StretchAck, 2)
	setDefault(&c.TSTick, tick.Millisecond)
	setDefault(&c.SYNRetries, 8)
	setDefault(&c.SYNACKRetries, 6)
	setDefault(&c.SYNTimeout, tick.Second)
	setDefault(&c.UserTimeout, 5*tick.Minute)
	setDefault(&c.KeepaliveInterval, 75*tick.Second)
	setDefault(&c.KeepaliveProbes, 9)
	setDefault(&c.PersistMax, tick.Minute)
	setDefault(&c.TimeWait, tick.Minute)
	setDefault(&c.FinWait2, tick.Minute)
	setDefault(&c.MaxHoles, MaxHoles)
	c.MaxHoles = min(c.MaxHoles, MaxHoles)
}

// headers returns the length of the IP and TCP headers in bytes, without options (RFC 6691).
func (c *Config) headers() int {
	if c.IPv6 {
		return 60
	}
	return 40
}
