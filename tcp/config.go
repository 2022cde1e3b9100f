package tcp

import (
	"xwarp/tcp/loss"
	"xwarp/tcp/tick"
)

// ECNMode is the kind of explicit congestion notification that a connection requests or grants.
type ECNMode uint8

const (
	ECNOff      ECNMode = iota // neither asks nor grants
	ECNPassive                 // grants a peer's request, and makes none
	ECNClassic                 // asks for RFC 3168
	ECNAccurate                // asks for RFC 9768, falls back to RFC 3168
)

// Config is the configuration of a connection. Conn keeps a copy. A zero field means the default in brackets.
type Config struct {
	// MTU is the largest IP packet that the local link takes [1500]. From it follow the MSS option, which announces
	// MTU less the headers, and the first EMSS.
	MTU  int
	IPv6 bool // headers of 60 bytes instead of 40

	// MSS, when set, is announced instead of MTU less headers (RFC 6691).
	MSS int
	// PathMTU, when set and below MTU, is the known MTU of the path.
	PathMTU int
	// MinPathMTU is the floor below which no ICMP message lowers the path MTU [552 for IPv4, 1280 for IPv6].
	MinPathMTU int
	// Encapsulation is how many bytes the layer below TCP adds to a packet at most, which MTU and PathMTU do not count.
	// The default of MinPathMTU is as many bytes less.
	Encapsulation int
	// ProbeMTU lets packetisation-layer probing (RFC 4821) search above PathMTU up to MTU, and below it when
	// full-sized segments vanish.
	ProbeMTU bool

	NoTimestamps bool // RFC 7323 timestamps neither asked for nor granted
	NoSACK       bool
	NoWScale     bool

	// RcvSpace is the initial receive space of the layer above in bytes [64 KiB]. RcvSpaceMax is its maximum, which
	// determines the window scale [RcvSpace].
	RcvSpace    int
	RcvSpaceMax int

	// DelayedAck is the longest an acknowledgement waits [40 ms; at most 500 ms, RFC 1122]. Negative: never waits.
	DelayedAck tick.Duration
	// QuickAcks is the number of acknowledgements at the start that are not delayed [16]. Negative: none.
	QuickAcks int
	// StretchAck is the number of full-sized segments that one acknowledgement may cover when they arrived in one
	// batch, between two calls of Poll [2, RFC 5681].
	StretchAck int
	// AckDelay is the time that an acknowledgement of fewer segments waits for more in a continuous stream. 0: it waits
	// for the segments of its batch only.
	AckDelay tick.Duration

	// TSOffset is added to the timestamp clock: random for each connection (RFC 7323, 5.4). TSTick is the clock's
	// period [1 ms; RFC 7323 allows 1 ms to 1 s, shorter ones shorten PAWS's reach].
	TSOffset uint32
	TSTick   tick.Duration

	ECN ECNMode

	// SYNRetries is the number of SYN retransmissions [8: the last after 3 minutes, RFC 9293, MUST-23]. SYNACKRetries
	// is the same for the SYN-ACK of a Listener [6: 2 minutes, because the SYN may be forged]. SYNTimeout is the time
	// before the first retransmission [1 s, RFC 6298].
	SYNRetries    int
	SYNACKRetries int
	SYNTimeout    tick.Duration

	// UserTimeout ends a connection whose bytes stay unacknowledged that long [5 min]. Negative: never.
	UserTimeout tick.Duration
	// AnnounceUTO sends the user timeout option (RFC 5482) with the SYN; AdoptUTO follows the peer's,
	// within UTOMin and UTOMax of limits.go.
	AnnounceUTO, AdoptUTO bool

	// KeepaliveIdle starts probes after that long without a segment; 0 is off. KeepaliveInterval [75 s] between
	// probes, KeepaliveProbes [9] without answer end the connection.
	KeepaliveIdle     tick.Duration
	KeepaliveInterval tick.Duration
	KeepaliveProbes   int

	// PersistMax is the longest pause between zero-window probes [60 s]. ZeroWindowTimeout ends a connection whose
	// peer kept a zero window that long (RFC 6429); 0: never.
	PersistMax        tick.Duration
	ZeroWindowTimeout tick.Duration

	// TimeWait is 2 MSL [60 s]. FinWait2 ends FIN-WAIT-2 after Detach [60 s].
	TimeWait tick.Duration
	FinWait2 tick.Duration
	// Linger bounds the time from Shutdown to the acknowledgement of our FIN; then RST. 0: only UserTimeout does.
	Linger tick.Duration

	// MaxHoles bounds the gaps in the received bytes [MaxHoles of limits.go, which is also the maximum].
	MaxHoles int

	// Loss configures loss recovery and congestion control; Init fills in what the handshake decides.
	Loss loss.Config

	// Budget throttles challenge ACKs of all connections of a worker; nil: only the throttle per connection.
	Budget *Budget
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// defaults fills in the defaults and clamps values that the RFCs bound. It is idempotent, because the connections of a
// Listener get a Config that it has completed before.
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

// headers is the length of IP and TCP headers without options (RFC 6691).
func (c *Config) headers() int {
	if c.IPv6 {
		return 60
	}
	return 40
}
