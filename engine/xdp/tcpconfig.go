package xdp

import (
	"cmp"
	"time"

	"xwarp/engine/iwarp"
	"xwarp/tcp"
	"xwarp/tcp/cc"
	"xwarp/tcp/loss"
)

// TCPConfig is what connections on the engine's own TCP ask for. Zero fields mean the defaults in brackets. What is not
// here follows from the device: MTU, windows (Options.Window, StreamConfig.RecvBuffer), keep-alive (Options.Keepalive).
type TCPConfig struct {
	MSS          int // is announced instead of what follows from the MTU (RFC 6691)
	NoTimestamps bool
	NoSACK       bool
	NoWScale     bool
	ECN          tcp.ECNMode
	Congestion   cc.Algorithm // [CUBIC]

	// DelayedAck is the longest that an acknowledgement waits [40 ms; at most 500 ms, RFC 1122]. Negative: not at all.
	DelayedAck time.Duration
	// StretchAck is how many full-sized segments that arrived in one batch an acknowledgement covers
	// [DefaultStretchAck; 2 for byte streams, RFC 5681].
	StretchAck int
	// AckDelay is how long an acknowledgement of fewer waits for more [DefaultAckDelay; byte streams: not at all].
	// Negative: not at all.
	AckDelay time.Duration

	// NoMTUProbe turns packetisation-layer probing (RFC 4821) off: a path that drops large packets without a word then
	// stops a connection.
	NoMTUProbe bool
	// NoPacing lets new segments leave in bursts as the window opens. Otherwise they are spread over round
	// trips of a millisecond and more: a burst that meets a shallow queue loses its tail, and flows share a
	// bottleneck less evenly.
	NoPacing bool

	SYNRetries int           // how often a SYN is sent again [8, RFC 9293, MUST-23]
	SYNTimeout time.Duration // before the first time [1 s, RFC 6298]
	// UserTimeout ends a connection whose octets stay unacknowledged that long [5 min]. Negative: never.
	UserTimeout time.Duration
	// ZeroWindowTimeout ends a connection whose peer kept its window shut that long (RFC 6429) [never].
	ZeroWindowTimeout time.Duration
	TimeWait          time.Duration // 2 MSL [60 s]
}

// DefaultStretchAck is how many full-sized segments that arrived in one batch a connection under MPA
// acknowledges with one segment, as a kernel with receive offload does. On veth, where the sender's processor
// binds, 8 gives 7 % more than 2 at MTU 1500, and more than 8 nothing.
const DefaultStretchAck = 8

// DefaultAckDelay is how long an acknowledgement of fewer waits for more: some ten full-sized segments at 10
// Gbit/s. A receiver that is faster than its sender finds batches of one or two segments, and each
// acknowledgement costs the sender as much as half a segment.
const DefaultAckDelay = 20 * time.Microsecond

// tcpConfig is what byte streams start with; nil takes the device's configuration.
func (x *driver) tcpConfig(c *TCPConfig) tcp.Config {
	if c == nil {
		c = &x.cfg.TCP
	}
	return tcp.Config{
		MSS: c.MSS, NoTimestamps: c.NoTimestamps, NoSACK: c.NoSACK, NoWScale: c.NoWScale,
		ECN: c.ECN, DelayedAck: c.DelayedAck, StretchAck: c.StretchAck, AckDelay: c.AckDelay,
		ProbeMTU: !c.NoMTUProbe, SYNRetries: c.SYNRetries, SYNTimeout: c.SYNTimeout,
		UserTimeout: c.UserTimeout, ZeroWindowTimeout: c.ZeroWindowTimeout, TimeWait: c.TimeWait,
		Loss: loss.Config{CC: cc.Config{Algorithm: c.Congestion}, Pacing: !c.NoPacing},
	}
}

// rdmaConfig is what connections under MPA start with.
func (x *driver) rdmaConfig() tcp.Config {
	c, opt := x.tcpConfig(nil), x.base.Options()
	c.KeepaliveIdle, c.KeepaliveInterval = opt.Keepalive.Idle, opt.Keepalive.Interval
	c.KeepaliveProbes = opt.Keepalive.Probes
	c.StretchAck = cmp.Or(c.StretchAck, DefaultStretchAck)
	c.AckDelay = cmp.Or(c.AckDelay, DefaultAckDelay)
	c.RcvSpace = cmp.Or(max(0, opt.Window), iwarp.DefaultWindow)
	c.RcvSpaceMax = c.RcvSpace
	return c
}
