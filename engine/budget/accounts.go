package budget

import (
	"container/list"
	"net/netip"

	"xwarp/tcp/tick"
)

// account is what one peer or one network has.
type account struct {
	key     netip.Prefix
	net     *account // of a peer: its network's
	n       [stages]int
	peers   int // of a network: peers with an account
	refused uint64
	bucket  bucket
	idle    *list.Element // in the list of those that have nothing
	since   tick.Time     // when that began
}

// bucket is a rate: a second's worth may come at once.
type bucket struct {
	tokens float64
	at     tick.Time
	begun  bool
}

// count adds by to what acc and its network have at a stage.
func (p *Peers) count(acc *account, s stage, by int, now tick.Time) {
	for c := acc; c != nil; c = c.net {
		c.n[s] += by
		p.listIdle(c, now)
	}
}

// listIdle keeps the list of accounts that have nothing.
func (p *Peers) listIdle(c *account, now tick.Time) {
	empty := c.n == [stages]int{} && c.peers == 0 && c != &p.rest
	switch {
	case empty && c.idle == nil:
		c.since = now
		c.idle = p.idle(c).PushFront(c)
	case !empty && c.idle != nil:
		p.idle(c).Remove(c.idle)
		c.idle = nil
	}
}

// idle returns the list in which c is when it has nothing.
func (p *Peers) idle(c *account) *list.List {
	if c.net != nil {
		return &p.idlePeer
	}
	return &p.idleNet
}

// find returns the account in which a is counted, and makes it when there is room: for a peer among those of
// its network, for a network among all. Without room its network's counts alone, or that of the rest. It may
// return one that has nothing, which is then in the list of those.
func (p *Peers) find(a netip.Addr, now tick.Time) *account {
	p.sweep(now)
	if c := p.accounts[PeerOf(a)]; c != nil {
		return c
	}
	net := p.accounts[networkOf(a)]
	if net == nil {
		if len(p.accounts)-p.peers >= MaxNetworks && !p.evict(&p.idleNet) {
			return &p.rest
		}
		net = &account{key: networkOf(a)}
		p.accounts[net.key] = net
		p.listIdle(net, now)
	} else if net.idle != nil {
		p.idleNet.MoveToFront(net.idle)
		net.since = now
	}
	if net.peers >= MaxPeersOfNetwork || p.peers >= MaxPeers && !p.evict(&p.idlePeer) {
		return net
	}
	c := &account{key: PeerOf(a), net: net}
	p.accounts[c.key] = c
	p.peers++
	net.peers++
	p.listIdle(net, now)
	p.listIdle(c, now)
	return c
}

// sweep forgets accounts that had nothing for long.
func (p *Peers) sweep(now tick.Time) {
	for _, l := range []*list.List{&p.idlePeer, &p.idleNet} {
		for e := l.Back(); e != nil && now.Sub(e.Value.(*account).since) > PeerIdle; e = l.Back() {
			p.evict(l)
		}
	}
}

// evict forgets the account of l that has had nothing for the longest time; false: there is none.
func (p *Peers) evict(l *list.List) bool {
	e := l.Back()
	if e == nil {
		return false
	}
	c := e.Value.(*account)
	l.Remove(e)
	delete(p.accounts, c.key)
	if c.net != nil {
		p.peers--
		c.net.peers--
		p.listIdle(c.net, c.since)
	}
	return true
}

// limits are the peer's or the network's. The rest is all networks together, and has no bound but those of
// workers and listeners.
func (c *account) limits(r *PeerRule) PeerLimits {
	switch {
	case c.net != nil:
		return r.Peer
	case c.key.IsValid():
		return r.Network
	}
	return PeerLimits{}
}

func (c *account) String() string {
	if !c.key.IsValid() {
		return "the rest of all networks"
	}
	if c.key.IsSingleIP() {
		return c.key.Addr().String()
	}
	return c.key.String()
}

func (b *bucket) has(perSecond int, now tick.Time) bool {
	most := float64(perSecond)
	if !b.begun {
		b.tokens, b.begun = most, true
	} else {
		b.tokens = min(most, b.tokens+most*float64(now.Sub(b.at))/float64(tick.Second))
	}
	b.at = now
	return b.tokens >= 1
}

// Bare is an address as rules and accounts have it: IPv4 as such, and without a zone.
func Bare(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// PeerOf and networkOf are what is taken for one owner: IPv6 gives each link 2^64 addresses, and each site 2^16 links.
// Any user of this host can connect from each address of 127.0.0.0/8, which is therefore one peer.
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
