package budget

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"xwarp/tcp/tick"
)

// ErrPeer is wrapped if a peer has reached a limit.
var ErrPeer = errors.New("peer limit reached")

// PeerLimits are the limits of one peer. Zero means no limit.
type PeerLimits struct {
	HalfOpen    int // half-open handshakes; further SYNs are answered with cookies
	Startup     int // connections in MPA start-up
	Connections int // connections in start-up or established
	Rate        int // new connections per second
}

// PeerRule has the limits of a peer, an IPv4 address or an IPv6 /64, and of its network, an IPv4 /24 or an IPv6 /48.
type PeerRule struct{ Peer, Network PeerLimits }

// stage is the state of a connection for accounting.
type stage int

const (
	halfOpen stage = iota
	startup
	established
	stages
)

// Peers counts the connections of peers, for all workers and devices that share it. Its methods may be called from any
// goroutine.
type Peers struct {
	rule func(netip.Addr) PeerRule

	mu        sync.Mutex
	accounts  map[netip.Prefix]*peerAccount
	peers     int // number of accounts of peers; the other accounts are of networks
	idlePeers idleAccounts[peerAccount]
	idleNets  idleAccounts[peerAccount]
	rest      peerAccount // common account of the networks without their own
	refused   uint64
}

// NewPeers returns accounts that apply rule to each address when a connection begins. Nil means DefaultPeer and
// DefaultNetwork for all. rule must not block.
func NewPeers(rule func(netip.Addr) PeerRule) *Peers {
	if rule == nil {
		rule = func(netip.Addr) PeerRule { return PeerRule{DefaultPeer, DefaultNetwork} }
	}
	return &Peers{rule: rule, accounts: map[netip.Prefix]*peerAccount{}}
}

// Charge is one connection, charged to the account of its peer, or of the peer's network. A nil Charge charges no
// account.
type Charge struct {
	p    *Peers
	a    *peerAccount // account of the peer or of its network, or the common account
	at   stage
	over bool
}

// Begin counts a connection that the peer with address a opened. The connection is in start-up.
func (p *Peers) Begin(a netip.Addr, now tick.Time) (*Charge, error) {
	return p.charge(a, startup, now)
}

// Dial counts a connection that this host opens to a, as established: its start-up is not a cost caused by the peer.
func (p *Peers) Dial(a netip.Addr, now tick.Time) (*Charge, error) {
	return p.charge(a, established, now)
}

func (p *Peers) charge(a netip.Addr, s stage, now tick.Time) (*Charge, error) {
	r := p.rule(Bare(a))
	p.mu.Lock()
	defer p.mu.Unlock()
	acc := p.find(Bare(a), now)
	if err := p.check(acc, s, &r, now); err != nil {
		return nil, err
	}
	p.count(acc, s, 1, now)
	return &Charge{p: p, a: acc, at: s}, nil
}

// check refuses a connection beyond the limits of its peer or network, and otherwise charges it to their rates.
func (p *Peers) check(acc *peerAccount, s stage, r *PeerRule, now tick.Time) error {
	for c := acc; c != nil; c = c.net {
		l := c.limits(r)
		switch {
		case s == startup && l.Startup > 0 && c.n[startup] >= l.Startup:
			return p.refuse(acc, c, "connections whose start-up is not done", l.Startup)
		case l.Connections > 0 && c.n[startup]+c.n[established] >= l.Connections:
			return p.refuse(acc, c, "connections", l.Connections)
		case l.Rate > 0 && !c.mayBegin(l.Rate, now):
			return p.refuse(acc, c, "connections begun in a second", l.Rate)
		}
	}
	for c := acc; c != nil; c = c.net {
		if c.limits(r).Rate > 0 {
			c.rate.AllowN(wallTime(now), 1)
		}
	}
	return nil
}

func (p *Peers) refuse(acc, full *peerAccount, what string, limit int) error {
	p.refused++
	for c := acc; c != nil; c = c.net {
		c.refused++
	}
	return fmt.Errorf("%w: %v has %d %s (raise the limit in [peers], or in a [[peer]] table)",
		ErrPeer, full, limit, what)
}

// Established moves the connection from start-up to established. It does nothing if the connection is not in start-up.
func (ch *Charge) Established() {
	if ch == nil {
		return
	}
	ch.p.mu.Lock()
	defer ch.p.mu.Unlock()
	if ch.at == startup && !ch.over {
		for c := ch.a; c != nil; c = c.net {
			c.n[startup]--
			c.n[established]++
		}
		ch.at = established
	}
}

// End removes the connection. Further calls do nothing.
func (ch *Charge) End(now tick.Time) {
	if ch == nil {
		return
	}
	ch.p.mu.Lock()
	defer ch.p.mu.Unlock()
	if !ch.over {
		ch.over = true
		ch.p.count(ch.a, ch.at, -1, now)
	}
}

// BeginHalfOpen counts a half-open connection of a. It returns false, and counts nothing, at the limit.
func (p *Peers) BeginHalfOpen(a netip.Addr, now tick.Time) bool {
	r := p.rule(Bare(a))
	p.mu.Lock()
	defer p.mu.Unlock()
	acc := p.find(Bare(a), now)
	for c := acc; c != nil; c = c.net {
		if l := c.limits(&r); l.HalfOpen > 0 && c.n[halfOpen] >= l.HalfOpen {
			return false
		}
	}
	p.count(acc, halfOpen, 1, now)
	return true
}

// EndHalfOpen undoes BeginHalfOpen when the half-open connection of a was established or forgotten.
func (p *Peers) EndHalfOpen(a netip.Addr, now tick.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range []netip.Prefix{PeerOf(Bare(a)), networkOf(Bare(a))} {
		if acc := p.accounts[key]; acc != nil && acc.n[halfOpen] > 0 { // otherwise another account was charged
			p.count(acc, halfOpen, -1, now)
			return
		}
	}
	if p.rest.n[halfOpen] > 0 {
		p.count(&p.rest, halfOpen, -1, now)
	}
}

// PeerState is the state of one account.
type PeerState struct {
	Prefix                         netip.Prefix // zero for the common account of other networks
	HalfOpen, Startup, Established int
	Refused                        uint64
}

// State returns at most MaxPeersShown accounts, those with the most connections first, and the number of refused
// connections.
func (p *Peers) State() (list []PeerState, refused uint64) {
	p.mu.Lock()
	add := func(c *peerAccount) {
		if c.n != [stages]int{} || c.refused > 0 {
			list = append(list, PeerState{c.key, c.n[halfOpen], c.n[startup], c.n[established],
				c.refused})
		}
	}
	for _, c := range p.accounts {
		add(c)
	}
	if p.rest.n != [stages]int{} {
		add(&p.rest)
	}
	refused = p.refused
	p.mu.Unlock()
	slices.SortFunc(list, func(a, b PeerState) int {
		return cmp.Or(cmp.Compare(b.Established+b.Startup, a.Established+a.Startup),
			cmp.Compare(b.HalfOpen, a.HalfOpen),
			cmp.Compare(b.Refused, a.Refused), a.Prefix.Addr().Compare(b.Prefix.Addr()),
			cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()))
	})
	return list[:min(len(list), MaxPeersShown)], refused
}

// adjust returns a limiter of perSecond events with bursts of one second's worth, or nil for 0, which means no limit.
// It returns l if the rate is unchanged.
func adjust(l *rate.Limiter, perSecond int) *rate.Limiter {
	switch {
	case perSecond == 0:
		return nil
	case l == nil || l.Burst() != perSecond:
		return rate.NewLimiter(rate.Limit(perSecond), perSecond)
	}
	return l
}

// wallTime converts a time of the caller's clock for package rate.
func wallTime(t tick.Time) time.Time { return time.Unix(0, int64(t)) }
