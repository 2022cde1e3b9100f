package device

import (
	"net/netip"
	"slices"
	"time"

	"xwarp/engine/budget"
	"xwarp/engine/daemon/config"
	"xwarp/engine/internal/core"
	"xwarp/engine/verbs"
	"xwarp/mpa/startup"
)

// mpaConfig converts the MPA options of the configuration to those of the engine.
func mpaConfig(m *config.MPA) verbs.MPAConfig {
	v := verbs.MPAWith(m.Markers, m.CRC)
	if m.Revision == 1 {
		v.Revision = startup.RevIETF
	}
	v.AnyCRCError, v.ClientServer, v.SingleAttempt = m.AnyCRCError, !m.PeerToPeer, !m.Retry
	return v
}

// policy is core.Options.Policy. It decides by the current configuration.
func (p *Opener) policy(remote netip.Addr) (verbs.MPAConfig, bool) {
	c := p.Config()
	m := c.MPAOf(remote)
	return mpaConfig(&m), c.Allowed(remote)
}

// override is core.Options.Override: a program can change the keys in mpa.override. It may always ask for a CRC, and
// for the end of the connection at any CRC error.
func (p *Opener) override(policy, asked verbs.MPAConfig) verbs.MPAConfig {
	may := p.Config().MPA.Override
	fixed := func(key string) bool { return !slices.Contains(may, key) }
	m := asked
	if fixed("revision") {
		m.Revision = policy.Revision
	}
	if fixed("markers") {
		m.Markers = policy.Markers
	}
	if fixed("crc") {
		m.CRC = min(asked.CRC, policy.CRC) // CRCRequired is the least value: it wins
	}
	if fixed("any_crc_error") {
		m.AnyCRCError = asked.AnyCRCError || policy.AnyCRCError
	}
	if fixed("peer_to_peer") {
		m.ClientServer, m.RTR = policy.ClientServer, policy.RTR
	}
	if fixed("retry") {
		m.SingleAttempt = policy.SingleAttempt
	}
	return m
}

// PeerRule returns the limits of the peer with address a.
func PeerRule(cfg *config.Loaded, a netip.Addr) budget.PeerRule {
	p := cfg.PeerLimitsOf(a)
	return budget.PeerRule{
		Peer: budget.PeerLimits{HalfOpen: p.HalfOpen, Startup: p.Startup,
			Connections: p.Connections, Rate: p.ConnectionRate},
		Network: budget.PeerLimits{HalfOpen: p.NetworkHalfOpen, Startup: p.NetworkStartup,
			Connections: p.NetworkConnections},
	}
}

// keepalive returns peers.keepalive in the form of the engine: a silent peer is dropped after twice that time.
func keepalive(p *config.Peers) core.Keepalive {
	return core.Keepalive{Idle: p.Keepalive.OrForever(), Probes: keepaliveProbes,
		Interval: max(p.Keepalive.D()/keepaliveProbes, time.Second)}
}

// keepaliveProbes is the number of probes that a silent peer may leave unanswered.
const keepaliveProbes = 6
