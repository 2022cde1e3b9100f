package xdp

import (
	"cmp"
	"time"

	"xwarp/engine/iwarp"
	"xwarp/tcp"
	"xwarp/tcp/cc"
	"xwarp/tcp/loss"
)

// TCPConfig configures connections on the engine's own TCP. Zero fields mean the defaults in brackets. The rest follows
// from the device: MTU, windows (Options.Window, StreamConfig.RecvBuffer), keep-alive (Options.Keepalive).
type TCPConfig struct {
	MSS          int // announced MSS [from the MTU, RFC 6691]
	NoTimestamps bool
	NoSACK       bool
	NoWScale     bool
	ECN          tcp.ECNMode
	Congestion   cc.Algorithm // [CUBIC]

	// DelayedAck is the maximum delay of an acknowledgement [40 ms; at most 500 ms, RFC 1122]. Negative: none.
	DelayedAck time.Duration
	// StretchAck is the number of full-sized segments of one batch that an acknowledgement covers
	// [DefaultStretchAck; 2 for byte streams, RFC 5681].
	StretchAck int
	// AckDelay is how long an acknowledgement of fewer segments waits for more [DefaultAckDelay; byte streams: none].
	// Negative: none.
	AckDelay time.Duration

	// NoMTUProbe disables packetisation-layer path MTU discovery (RFC 4821). A path that drops large packets without an
	// ICMP message then stalls a connection.
	NoMTUProbe bool
	// NoPacing sends new segments in bursts as the window opens. With pacing, they are spread over round trips of a
	// millisecond and more. Without it, bursts lose their tails in shallow queues, and flows share a bottleneck less
	// evenly.
	NoPacing bool

	SYNRetries int           // number of retransmissions of a SYN [8, RFC 9293, MUST-23]
	SYNTimeout time.Duration // time before the first retransmission [1 s, RFC 6298]
	// UserTimeout ends a connection whose bytes stay unacknowledged for that long [5 min]. Negative: never.
	UserTimeout time.Duration
	// ZeroWindowTimeout ends a connection whose peer kept a zero window for that long (RFC 6429) [never].
	ZeroWindowTimeout time.Duration
	TimeWait          time.Duration // 2 MSL [60 s]
}

// DefaultStretchAck is the number of full-sized segments of one batch that a connection under MPA acknowledges with one
// segment, as a kernel with receive offload does. On veth, where the sender's processor is the bottleneck, 8 is 7 %
// faster than 2 at MTU 1500, and larger numbers are not faster.
const DefaultStretchAck = 8

// DefaultAckDelay is how long an acknowledgement of fewer segments waits for more: the time of some ten full-sized
// segments at 10 Gbit/s. A receiver that is faster than its sender finds batches of one or two segments, and each
// acknowledgement costs the sender as much as half a segment.
const DefaultAckDelay = 20 * time.Microsecond

// tcpConfig returns the configuration of a byte stream's connection; nil means the device's.
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

// rdmaConfig returns the configuration of a connection under MPA.
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
