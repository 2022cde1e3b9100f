package budget

import (
	"net/netip"

	"golang.org/x/time/rate"

	"xwarp/tcp/tick"
)

// peerAccount counts the connections of a peer or a network.
type peerAccount struct {
	key     netip.Prefix
	net     *peerAccount // for a peer, the account of its network; nil for a network
	n       [stages]int
	peers   int // for a network, the number of its peers that have an account
	refused uint64
	rate    *rate.Limiter // of new connections; nil if unlimited
	idle    idle
}

// count adds n, which may be negative, to the number of connections at a stage, of acc and of its network.
func (p *Peers) count(acc *peerAccount, s stage, n int, now tick.Time) {
	for c := acc; c != nil; c = c.net {
		c.n[s] += n
		p.updateIdle(c, now)
	}
}

// updateIdle updates the lists of idle accounts.
func (p *Peers) updateIdle(c *peerAccount, now tick.Time) {
	empty := c.n == [stages]int{} && c.peers == 0 && c != &p.rest
	p.idleOf(c).update(c, &c.idle, empty, now)
}

// idleOf returns the idle list of c's kind.
func (p *Peers) idleOf(c *peerAccount) *idleAccounts[peerAccount] {
	if c.net != nil {
		return &p.idlePeers
	}
	return &p.idleNets
}

// find returns the account that counts the connections of a: that of the peer, which find creates if there is room.
// Without room for a peer it returns the account of the network, and without room for a network the common account. The
// account of a peer or a network may hold nothing, and is then in an idle list.
func (p *Peers) find(a netip.Addr, now tick.Time) *peerAccount {
	p.sweep(now)
	if c := p.accounts[PeerOf(a)]; c != nil {
		return c
	}
	net := p.accounts[networkOf(a)]
	if net == nil {
		if len(p.accounts)-p.peers >= MaxNetworks && !p.evict(&p.idleNets) {
			return &p.rest
		}
		net = &peerAccount{key: networkOf(a)}
		p.accounts[net.key] = net
		p.updateIdle(net, now)
	} else if net.idle.place != nil {
		p.idleNets.refresh(&net.idle, now)
	}
	if net.peers >= MaxPeersOfNetwork || p.peers >= MaxPeers && !p.evict(&p.idlePeers) {
		return net
	}
	c := &peerAccount{key: PeerOf(a), net: net}
	p.accounts[c.key] = c
	p.peers++
	net.peers++
	p.updateIdle(net, now)
	p.updateIdle(c, now)
	return c
}

// sweep forgets accounts that have been idle for long.
func (p *Peers) sweep(now tick.Time) {
	for _, l := range []*idleAccounts[peerAccount]{&p.idlePeers, &p.idleNets} {
		for c := l.oldest(); c != nil && now.Sub(c.idle.since) > PeerIdle; c = l.oldest() {
			p.evict(l)
		}
	}
}

// evict forgets the account of l that has been idle longest. It returns false if there is none.
func (p *Peers) evict(l *idleAccounts[peerAccount]) bool {
	c := l.oldest()
	if c == nil {
		return false
	}
	l.remove(&c.idle)
	delete(p.accounts, c.key)
	if c.net != nil {
		p.peers--
		c.net.peers--
		p.updateIdle(c.net, c.idle.since)
	}
	return true
}

// limits returns the limits of a peer or a network. The common account of all other networks is limited by workers and
// listeners only.
func (c *peerAccount) limits(r *PeerRule) PeerLimits {
	switch {
	case c.net != nil:
		return r.Peer
	case c.key.IsValid():
		return r.Network
	}
	return PeerLimits{}
}

// mayBegin reports whether the rate allows another connection.
func (c *peerAccount) mayBegin(perSecond int, now tick.Time) bool {
	c.rate = adjust(c.rate, perSecond)
	return c.rate.TokensAt(wallTime(now)) >= 1
}

func (c *peerAccount) String() string {
	if !c.key.IsValid() {
		return "the rest of all networks"
	}
	if c.key.IsSingleIP() {
		return c.key.Addr().String()
	}
	return c.key.String()
}

// Bare returns an address as rules and accounts use it: without a zone, and with IPv4-mapped addresses as IPv4.
func Bare(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// PeerOf and networkOf return the prefix that is treated as one owner: IPv6 gives each link 2^64 addresses, and each
// site 2^16 links. 127.0.0.0/8 is one peer, because any local user can connect from each of its addresses.
func PeerOf(a netip.Addr) netip.Prefix {
	switch {
	case a.Is4() && a.IsLoopback():
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{127}), 8)
	case a.Is4():
		return netip.PrefixFrom(a, 32)
	}
	p, _ := a.Prefix(64)
	return p
}

func networkOf(a netip.Addr) netip.Prefix {
	bits := 48
	if a.Is4() {
		bits = 24
	}
	p, _ := a.Prefix(bits)
	return p
}
