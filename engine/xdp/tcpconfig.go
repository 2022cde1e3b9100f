package xdp

import (
	"cmp"
	"time"

	"xwarp/engine/iwarp"
	"xwarp/tcp"
)

// TCPConfig configures connections on the engine's own TCP. The MTU is a setting of the device. Under MPA the window
// (Options.Window) and keepalive (Options.Keepalive) are, too; a StretchAck of zero means DefaultStretchAck, and an
// AckDelay of zero DefaultAckDelay. The window of a byte stream is StreamConfig.RecvBuffer.
type TCPConfig struct {
	tcp.Config
	// NoMTUProbe disables packetisation-layer path MTU discovery (RFC 4821). A path that drops large packets without an
	// ICMP message then stalls a connection.
	NoMTUProbe bool
	// NoPacing sends new segments in bursts as the window opens, instead of spreading them over round trips of a
	// millisecond or more. Bursts lose their tails in shallow queues and share a bottleneck less evenly.
	NoPacing bool
}

// DefaultStretchAck is the number of full-sized segments of one batch that a connection under MPA acknowledges with one
// segment, as a kernel with receive offload does. On veth, where the sender's processor is the bottleneck, 8 is 7 %
// faster than 2 at MTU 1500, and larger numbers are not faster.
const DefaultStretchAck = 8

// DefaultAckDelay is how long an acknowledgement of fewer segments waits for more: the time of some ten full-sized
// segments at 10 Gbit/s. A receiver that is faster than its sender finds batches of one or two segments, and each
// acknowledgement costs the sender as much as half a segment.
const DefaultAckDelay = 20 * time.Microsecond

// tcpConfig converts c, or Config.TCP of the device if c is nil, to the configuration of a connection.
func (x *driver) tcpConfig(c *TCPConfig) tcp.Config {
	if c == nil {
		c = &x.cfg.TCP
	}
	t := c.Config
	t.ProbeMTU, t.Loss.Pacing = !c.NoMTUProbe, !c.NoPacing
	return t
}

// tos returns the TOS byte of packets whose connection or listener sets none.
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
