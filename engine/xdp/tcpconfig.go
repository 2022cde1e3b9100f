package xdp

import (
	"cmp"
	"time"

	"xwarp/engine/iwarp"
	"xwarp/tcp"
	"xwarp/tcp/cc"
	"xwarp/tcp/loss"
)

// TCPConfig configures connections on the engine's own TCP. MTU, windows (Options.Window, StreamConfig.RecvBuffer) and
// keepalive (Options.Keepalive) are settings of the device.
type TCPConfig struct {
	// MSS is the announced MSS in bytes. Zero means that it follows from the MTU (RFC 6691).
	MSS int
	// NoTimestamps disables the timestamps option.
	NoTimestamps bool
	// NoSACK disables selective acknowledgements.
	NoSACK bool
	// NoWScale disables window scaling.
	NoWScale bool
	// ECN is the use of explicit congestion notification.
	ECN tcp.ECNMode
	// Congestion is the congestion control algorithm. Zero means CUBIC.
	Congestion cc.Algorithm

	// DelayedAck is the maximum delay of an acknowledgement, at most 500 ms (RFC 1122). Zero means 40 ms; negative
	// means no delay.
	DelayedAck time.Duration
	// StretchAck is the number of full-sized segments of one batch that an acknowledgement covers. Zero means
	// DefaultStretchAck, or 2 for byte streams (RFC 5681).
	StretchAck int
	// AckDelay is how long an acknowledgement of fewer segments waits for more. Zero means DefaultAckDelay, or no delay
	// for byte streams; negative means no delay.
	AckDelay time.Duration

	// NoMTUProbe disables packetisation-layer path MTU discovery (RFC 4821). A path that drops large packets without an
	// ICMP message then stalls a connection.
	NoMTUProbe bool
	// NoPacing sends new segments in bursts as the window opens, instead of spreading them over round trips of a
	// millisecond or more. Bursts lose their tails in shallow queues and share a bottleneck less evenly.
	NoPacing bool

	// SYNRetries is the number of retransmissions of a SYN. Zero means 8 (RFC 9293, MUST-23).
	SYNRetries int
	// SYNTimeout is the time before the first retransmission of a SYN. Zero means 1 s (RFC 6298).
	SYNTimeout time.Duration
	// UserTimeout ends a connection whose data stays unacknowledged for this time. Zero means 5 minutes; negative means
	// never.
	UserTimeout time.Duration
	// ZeroWindowTimeout ends a connection whose peer keeps a zero window for this time (RFC 6429). Zero means never.
	ZeroWindowTimeout time.Duration
	// TimeWait is the duration of TIME-WAIT, 2 MSL. Zero means 60 s.
	TimeWait time.Duration
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

// tos returns the TOS byte of packets whose connection or listener has no other.
func (x *driver) tos() uint8 { return uint8(x.base.Options().DSCP) << 2 }

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
