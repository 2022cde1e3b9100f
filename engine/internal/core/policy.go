package core

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"time"

	"xwarp/engine/verbs"
	"xwarp/mpa/startup"
)

// Policy decides about a peer. allowed says whether there may be a connection, in either direction. m is its MPA
// configuration, unless the connection or its listener has one of its own. Workers and other goroutines call Policy
// concurrently. It must not block.
type Policy func(remote netip.Addr) (m verbs.MPAConfig, allowed bool)

// Override returns the configuration to use if own is that of a connection or its listener, and policy is the one that
// Policy, or else Options.MPA, has for the peer. Workers and other goroutines call it concurrently. It must not block.
type Override func(policy, own verbs.MPAConfig) verbs.MPAConfig

// PeerDenied wraps the error of a peer that has reached its limits in ErrPeerDenied. It returns nil for nil.
func PeerDenied(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w now: %w", verbs.ErrPeerDenied, err)
}

// mpaConfig returns the MPA configuration for remote. It fails when the policy denies remote.
func (d *Device) mpaConfig(own *verbs.MPAConfig, remote netip.Addr) (verbs.MPAConfig, error) {
	m := d.opt.MPA
	if d.opt.Policy != nil {
		var allowed bool
		if m, allowed = d.opt.Policy(remote); !allowed {
			return m, verbs.ErrPeerDenied
		}
	}
	switch {
	case own == nil:
	case d.opt.Override != nil:
		m = d.opt.Override(m, *own)
	default:
		m = *own
	}
	return m, nil
}

// initiator and responder return the start-up configuration of the two sides.
func initiator(m *verbs.MPAConfig, private []byte, ird, ord int) startup.Config {
	c := responder(m)
	c.PrivateData, c.IRD, c.ORD = private, uint16(ird), uint16(ord)
	if c.RTRs == 0 {
		c.RTRs = startup.RTRRead
	}
	if m.ClientServer {
		c.RTRs = 0
	}
	return c
}

func responder(m *verbs.MPAConfig) startup.Config {
	return startup.Config{
		Role: m.Role, Revision: m.Revision, Markers: m.Markers != verbs.MarkersOff,
		MirrorMarkers: m.Markers != verbs.MarkersAlways, NoCRC: m.CRC == verbs.CRCOptional,
		RTRs: m.RTR, RtrFrame: m.RtrFrame, SMBD: m.SMBD,
	}
}

// Keepalive configures TCP keepalive, which detects dead peers. Zero fields mean those of DefaultKeepalive.
type Keepalive struct {
	// Idle is the silence before the first probe. tick.Forever means no probes.
	Idle time.Duration
	// Interval is the time between two unanswered probes.
	Interval time.Duration
	// Probes is the number of unanswered probes that end the connection.
	Probes int
}

// DefaultKeepalive ends the connection of a dead peer after two minutes. RDMA consumers have no other way to detect a
// dead peer. Byte streams use the two hours of RFC 9293 (MUST-28).
var DefaultKeepalive = Keepalive{Idle: time.Minute, Interval: 10 * time.Second, Probes: 6}

func (k *Keepalive) complete() {
	k.Idle = cmp.Or(k.Idle, DefaultKeepalive.Idle)
	k.Interval = cmp.Or(k.Interval, DefaultKeepalive.Interval)
	k.Probes = cmp.Or(k.Probes, DefaultKeepalive.Probes)
}

// SocketConfig returns k as socket options: SO_KEEPALIVE, TCP_KEEPIDLE, TCP_KEEPINTVL and TCP_KEEPCNT.
func (k *Keepalive) SocketConfig() net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: k.Idle > 0, Idle: max(k.Idle, 0), Interval: k.Interval,
		Count: k.Probes}
}
