package daemon

import (
	"net/netip"
	"time"

	"xwarp/engine/budget"
	"xwarp/engine/daemon/config"
	"xwarp/engine/daemon/control"
	"xwarp/engine/internal/core"
)

// peerRule is what the peer at a may have, by the configuration as it is now.
func (d *Daemon) peerRule(a netip.Addr) budget.PeerRule {
	p := d.cfg.Load().PeersOf(a)
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

// peerStates are the accounts of peers for a snapshot.
func (d *Daemon) peerStates() (list []control.PeerState, refused uint64) {
	states, refused := d.peers.State()
	for _, s := range states {
		v := control.PeerState{Prefix: "others", HalfOpen: s.HalfOpen, Startup: s.Startup,
			Connections: s.Established, Refused: s.Refused}
		if s.Prefix.IsValid() {
			v.Prefix = s.Prefix.String()
		}
		list = append(list, v)
	}
	return list, refused
}
