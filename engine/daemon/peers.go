package daemon

import (
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"xwarp/engine"
	"xwarp/engine/daemon/config"
)

// maxPeers bounds the addresses that are counted: a peer that has a whole prefix to itself must not fill the memory.
const maxPeers = 4096

// peers count the connections of remote addresses, for the limits of [[peer]].
type peers struct {
	mu  sync.Mutex
	use map[netip.Addr]*peerUse
}

// peerUse is what one address has.
type peerUse struct {
	connections int
	pace        *rate.Limiter // nil: the rate is not limited
}

// admit counts one more connection with a, unless a limit is in the way. release takes it back.
func (p *peers) admit(c *config.Peer, a netip.Addr, now time.Time) (release func(), err error) {
	if c == nil || c.Connections == 0 && c.ConnectionRate == 0 {
		return func() {}, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	u := p.use[a]
	if u == nil {
		if len(p.use) >= maxPeers && !p.sweep(now) {
			return nil, fmt.Errorf("%w now: %d addresses are counted already", engine.ErrPeerDenied, maxPeers)
		}
		u = &peerUse{}
		if p.use == nil {
			p.use = map[netip.Addr]*peerUse{}
		}
		p.use[a] = u
	}
	if c.Connections > 0 && u.connections >= c.Connections {
		return nil, fmt.Errorf("%w now: %v has %d (raise connections in the [[peer]] table of %v)", engine.ErrPeerDenied, a, u.connections, c.Prefix)
	}
	if !u.paced(c.ConnectionRate, now) {
		return nil, fmt.Errorf("%w now: %v begins more than %d a second (raise connection_rate in the [[peer]] table of %v)",
			engine.ErrPeerDenied, a, c.ConnectionRate, c.Prefix)
	}
	u.connections++
	return func() { p.release(a, u) }, nil
}

// paced takes a connection from the rate, which a reload may have changed; a second's worth may come at once.
func (u *peerUse) paced(perSecond int, now time.Time) bool {
	if perSecond == 0 {
		u.pace = nil
		return true
	}
	if u.pace == nil {
		u.pace = rate.NewLimiter(rate.Limit(perSecond), perSecond)
	} else if u.pace.Burst() != perSecond {
		u.pace.SetLimitAt(now, rate.Limit(perSecond))
		u.pace.SetBurstAt(now, perSecond)
	}
	return u.pace.AllowN(now, 1)
}

func (p *peers) release(a netip.Addr, u *peerUse) {
	p.mu.Lock()
	defer p.mu.Unlock()
	u.connections--
	if u.connections == 0 && u.pace == nil {
		delete(p.use, a)
	}
}

// sweep forgets addresses that have no connection and began none lately; it reports whether there is room then.
func (p *peers) sweep(now time.Time) bool {
	for a, u := range p.use {
		if u.connections == 0 && (u.pace == nil || u.pace.TokensAt(now) >= float64(u.pace.Burst())) {
			delete(p.use, a)
		}
	}
	return len(p.use) < maxPeers
}

// admission is engine.Admission, by the configuration as it is now.
func (d *Daemon) admission(remote netip.Addr) (release func(), err error) {
	a := remote.Unmap().WithZone("")
	return d.peers.admit(d.cfg.Load().PeerOf(a), a, time.Now())
}
