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

// mpaConfig is the engine's form of a policy.
func mpaConfig(m *config.MPA) verbs.MPAConfig {
	v := verbs.MPAWith(m.Markers, m.CRC)
	if m.Revision == 1 {
		v.Revision = startup.RevIETF
	}
	v.AnyCRCError, v.ClientServer, v.SingleAttempt = m.AnyCRCError, !m.PeerToPeer, !m.Retry
	return v
}

// policy is engine.Policy, by the configuration as it is now.
func (p *Opener) policy(remote netip.Addr) (verbs.MPAConfig, bool) {
	c := p.Config()
	m := c.MPAOf(remote)
	return mpaConfig(&m), c.Allowed(remote)
}

// override is engine.Override: of what a program asks for, the keys of mpa.override count. It may always ask
// for more safety than the operator does.
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
		m.CRC = min(asked.CRC, policy.CRC) // required comes first
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

// PeerRule is what the peer at a may have.
func PeerRule(cfg *config.Loaded, a netip.Addr) budget.PeerRule {
	p := cfg.PeersOf(a)
	return budget.PeerRule{
		Peer: budget.PeerLimits{HalfOpen: p.HalfOpen, Startup: p.Startup,
			Connections: p.Connections, Rate: p.ConnectionRate},
		Network: budget.PeerLimits{HalfOpen: p.NetworkHalfOpen, Startup: p.NetworkStartup,
			Connections: p.NetworkConnections},
	}
}

// keepalive is the engine's form of peers.keepalive: a silent peer is given up after twice that.
func keepalive(p *config.Peers) core.Keepalive {
	k := core.Keepalive{Idle: p.Keepalive.D(), Probes: keepaliveProbes,
		Interval: max(p.Keepalive.D()/keepaliveProbes, time.Second)}
	if k.Idle == 0 {
		k.Idle = core.Never
	}
	return k
}

// keepaliveProbes is how many questions a silent peer may leave unanswered.
const keepaliveProbes = 6
