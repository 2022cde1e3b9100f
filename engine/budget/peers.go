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

// ErrPeer is wrapped when a peer has as much as it may have.
var ErrPeer = errors.New("peer limit reached")

// PeerLimits are what one peer may have; 0 is no bound.
type PeerLimits struct {
	HalfOpen    int // handshakes that wait for their third segment; more are answered with SYN cookies
	Startup     int // connections whose MPA start-up is not done
	Connections int // of these and of those that are established
	Rate        int // connections begun in a second
}

// PeerRule is what holds for a peer, which is an IPv4 address or an IPv6 /64, and for its network, an IPv4
// /24 or an IPv6 /48.
type PeerRule struct{ Peer, Network PeerLimits }

// stage is how far a connection is.
type stage int

const (
	halfOpen stage = iota
	startup
	established
	stages
)

// Peers counts what peers have, for all workers and devices that share it. Its methods may be called from any
// goroutine.
type Peers struct {
	rule func(netip.Addr) PeerRule

	mu        sync.Mutex
	accounts  map[netip.Prefix]*peerAccount
	peers     int // accounts of peers, the others are of networks
	idlePeers idleAccounts[peerAccount]
	idleNets  idleAccounts[peerAccount]
	rest      peerAccount // networks without an account of their own
	refused   uint64
}

// NewPeers counts by the rule that holds for each address when a connection begins; nil: DefaultPeer and
// DefaultNetwork for all. The rule must not block.
func NewPeers(rule func(netip.Addr) PeerRule) *Peers {
	if rule == nil {
		rule = func(netip.Addr) PeerRule { return PeerRule{DefaultPeer, DefaultNetwork} }
	}
	return &Peers{rule: rule, accounts: map[netip.Prefix]*peerAccount{}}
}

// Charge is one connection that is charged to its peer's account. A nil Charge charges nobody.
type Charge struct {
	p    *Peers
	a    *peerAccount // the peer's, or else the network's
	at   stage
	over bool
}

// Begin counts one more connection that a opened, which is in start-up.
func (p *Peers) Begin(a netip.Addr, now tick.Time) (*Charge, error) {
	return p.charge(a, startup, now)
}

// Dial counts a connection that this host opens to a. It counts as established at once: its start-up is no cost that a
// peer causes.
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

// check refuses a connection that is too much for its peer or its network, and takes it from their rates otherwise.
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

// Established says that the start-up of a connection is done.
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

// End says that a connection is gone. Further calls do nothing.
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

// BeginHalfOpen counts a half-open connection with a. It returns false, and counts nothing, if there are enough.
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

// EndHalfOpen ends the count of a half-open connection with a, which was established or forgotten.
func (p *Peers) EndHalfOpen(a netip.Addr, now tick.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range []netip.Prefix{PeerOf(Bare(a)), networkOf(Bare(a))} {
		if acc := p.accounts[key]; acc != nil && acc.n[halfOpen] > 0 { // else that account was made later
			p.count(acc, halfOpen, -1, now)
			return
		}
	}
	if p.rest.n[halfOpen] > 0 {
		p.count(&p.rest, halfOpen, -1, now)
	}
}

// PeerState is one account.
type PeerState struct {
	Prefix                         netip.Prefix // invalid: all networks without an account
	HalfOpen, Startup, Established int
	Refused                        uint64
}

// State returns at most MaxPeersShown accounts, those with the most connections first, and how many
// connections were refused so far.
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

// adjust returns a limiter of perSecond, of which a second's worth may come at once; nil for 0, which is no limit. It
// is l as long as the rate stays the same.
func adjust(l *rate.Limiter, perSecond int) *rate.Limiter {
	switch {
	case perSecond == 0:
		return nil
	case l == nil || l.Burst() != perSecond:
		return rate.NewLimiter(rate.Limit(perSecond), perSecond)
	}
	return l
}

// wallTime is a time of the caller's clock as package rate takes it.
func wallTime(t tick.Time) time.Time { return time.Unix(0, int64(t)) }
