package device

import (
	"net/netip"
	"slices"
	"time"

	"xwarp/engine/budget"
	"xwarp/engine/daemon/config"
	"xwarp/engine/internal/core"
	"xwarp/engine/verbs"
)

// mpaConfig is the engine's form of a policy.
func mpaConfig(m *config.MPA) verbs.MPAConfig {
	return verbs.MPAConfig{
		Revision1: m.Revision == 1, NoMarkers: !m.Markers, NoCRC: !m.CRC,
		AnyCRCError: m.AnyCRCError, NoPeerToPeer: !m.PeerToPeer,
		NoRetry: !m.Retry,
	}
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
		m.Revision1 = policy.Revision1
	}
	if fixed("markers") {
		m.NoMarkers, m.InsistMarkers = policy.NoMarkers, policy.InsistMarkers
	}
	if fixed("crc") {
		m.NoCRC = asked.NoCRC && policy.NoCRC
	}
	if fixed("any_crc_error") {
		m.AnyCRCError = asked.AnyCRCError || policy.AnyCRCError
	}
	if fixed("peer_to_peer") {
		m.NoPeerToPeer, m.RTR = policy.NoPeerToPeer, policy.RTR
	}
	if fixed("retry") {
		m.NoRetry = policy.NoRetry
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
		k.Idle = -1
	}
	return k
}

// keepaliveProbes is how many questions a silent peer may leave unanswered.
const keepaliveProbes = 6
