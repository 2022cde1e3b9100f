// Package ipsec applies the security associations that package xfrm gets from the kernel to a Stack: which connections
// are protected, which SA they send with, and when to ask the IKE daemon for another one. Hosts communicate directly:
// in tunnel mode the outer addresses are those of the connections.
package ipsec

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"

	"xwarp/engine/esp"
	"xwarp/engine/host/xfrm"
	"xwarp/engine/stack"
	"xwarp/tcp"
	"xwarp/tcp/ip"
	"xwarp/tcp/tick"
)

// Rule says whether connections are protected. The first Rule that matches a connection applies.
type Rule struct {
	Remote []netip.Prefix // prefixes of the peer; none: all
	Ports  []uint16       // ports of either end; none: all
	Mode   esp.Mode
	Clear  bool // do not protect
}

func (r *Rule) isFor(remote netip.Addr) bool {
	return len(r.Remote) == 0 ||
		slices.ContainsFunc(r.Remote, func(p netip.Prefix) bool { return p.Contains(remote) })
}

func (r *Rule) hasPort(local, remote uint16) bool {
	return len(r.Ports) == 0 || slices.Contains(r.Ports, local) || slices.Contains(r.Ports, remote)
}

// Kernel has the methods of xfrm.Follower that a Manager uses.
type Kernel interface {
	Acquire(p *xfrm.Policy) error
	Expire(sa *xfrm.SA, hard bool) error
	Account(sa *xfrm.SA, packets, bytes uint64) error
}

// Steering tells the host's packet filter which SAs belong to the engine. bpf.Steering implements it.
type Steering interface {
	AddSA(dst, src netip.Addr, spi uint32) error
	RemoveSA(dst, src netip.Addr, spi uint32) error
}

// Config configures a Manager.
type Config struct {
	Rules []Rule
	// Owns reports whether the Stack has the connections and SAs between two hosts. Nil means that it has all.
	Owns     func(local, remote netip.Addr) bool
	Window   int // minimum anti-replay window in packets; default esp.DefaultWindow; the IKE daemon's may be larger
	Kernel   Kernel
	Steering Steering
	Random   func() uint64 // unpredictable, for masks of IVs
	// Ask runs f, which makes a system call, on another thread. Nil means a new goroutine.
	Ask func(f func())
	// Failed, if set, is called with the error of each failed request, on any goroutine.
	Failed func(error)
	Log    *slog.Logger
}

// Manager is the stack.IPsec of one Stack. All methods except Use and Close are called on the thread of the Stack.
type Manager struct {
	cfg      Config
	stack    *stack.Stack
	flows    map[flowKey]*flow
	policies []*xfrm.Policy
	sas      map[*xfrm.SA]*held // each SA ever gets one esp.Out only, because another would count from 1 again
	refused  map[*xfrm.SA]bool  // SAs whose refusal was logged
	due      tick.Time          // time of the next accounting
	next     tick.Time          // earliest of due and the retries of flows; 0: unknown, so Expire is due
	state    *xfrm.Snapshot     // argument of the last Update
	total    Stats              // without the counters of present SAs
}

// flowKey identifies a flow, whose connections share SAs: by the two hosts, the mode, and the ports of the IKE daemon's
// policies. Two hosts have flows of both modes if their rules have different modes, or after a reload of the rules. An
// SA only carries connections that match its policies (RFC 4301, 5.2).
type flowKey struct {
	local, remote ip.Addr
	mode          esp.Mode
	ports         portPair
}

// portPair has the ports of a policy. The least pair of a group of policies that share SAs identifies the group.
type portPair struct{ local, remote xfrm.Ports }

func (a portPair) compare(b portPair) int {
	return cmp.Or(cmp.Compare(a.local.Port, b.local.Port), cmp.Compare(a.local.Mask, b.local.Mask),
		cmp.Compare(a.remote.Port, b.remote.Port), cmp.Compare(a.remote.Mask, b.remote.Mask))
}

// portsOf returns the least ports among p and the policies between two hosts that share SAs with p, because they have
// its ReqID. The ReqID itself identifies nothing: it may change when the IKE daemon restarts.
func (m *Manager) portsOf(p *xfrm.Policy, local, remote netip.Addr) portPair {
	least := portPair{p.LocalPort, p.RemotePort}
	for _, q := range m.policies {
		x := portPair{q.LocalPort, q.RemotePort}
		if q.Out == p.Out && q.Mode == p.Mode && q.ReqID == p.ReqID && q.ForTCP() &&
			q.Local.Contains(local) && q.Remote.Contains(remote) && x.compare(least) < 0 {
			least = x
		}
	}
	return least
}

// keyOf returns the key of a connection protected by r, and whether a policy matches it.
func (m *Manager) keyOf(r *Rule, t *tcp.Tuple) (k flowKey, covered bool) {
	k = flowKey{local: t.Local, remote: t.Remote, mode: r.Mode}
	local := netip.AddrPortFrom(addrOf(t.Local), t.LocalPort)
	remote := netip.AddrPortFrom(addrOf(t.Remote), t.RemotePort)
	for _, p := range m.policies {
		if p.Out && p.Mode == r.Mode && p.Matches(local, remote) {
			k.ports = m.portsOf(p, local.Addr(), remote.Addr())
			return k, true
		}
	}
	return k, false
}

// keyOfSA returns the key of an SA between two hosts, and whether a policy uses it.
func (m *Manager) keyOfSA(sa *xfrm.SA, local, remote netip.Addr) (k flowKey, used bool) {
	k = flowKey{local: ip.Addr(local.As16()), remote: ip.Addr(remote.As16()), mode: sa.Mode}
	for _, p := range m.policies {
		if p.Out == (sa.Src == local) && p.ForTCP() && p.Uses(sa) {
			k.ports = m.portsOf(p, local, remote)
			return k, true
		}
	}
	return k, false
}

// flow is a stack.Flow with the state of the requests for its SAs.
type flow struct {
	stack.Flow
	current *xfrm.SA      // SA that the flow sends with; nil if none
	wantsSA bool          // packets are waiting
	retry   tick.Time     // time of the next request for an SA, if wantsSA
	pause   tick.Duration // interval between the next request and the one that follows it
}

// held is the state of an SA in use.
type held struct {
	in    *esp.In  // of an inbound SA, else nil
	out   *esp.Out // of an outbound SA, else nil
	flow  *flow
	asked bool // a successor was requested
	spent bool // the hard limit was reached
}

func (h *held) used() (packets, bytes uint64) {
	if h.in != nil {
		return h.in.Used()
	}
	return h.out.Used()
}

// New returns a Manager. Pass it to stack.New, then call Use with the Stack.
func New(cfg Config) *Manager {
	if cfg.Window == 0 {
		cfg.Window = esp.DefaultWindow
	}
	if cfg.Ask == nil {
		cfg.Ask = func(f func()) { go f() }
	}
	if cfg.Owns == nil {
		cfg.Owns = func(_, _ netip.Addr) bool { return true }
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Manager{cfg: cfg, flows: map[flowKey]*flow{}, sas: map[*xfrm.SA]*held{},
		refused: map[*xfrm.SA]bool{}, state: &xfrm.Snapshot{}}
}

// Use sets the Stack whose SAs the Manager manages.
func (m *Manager) Use(s *stack.Stack) { m.stack = s }

// rule returns the rule for a connection, or nil if it is not protected.
func (m *Manager) rule(t *tcp.Tuple) *Rule {
	remote := addrOf(t.Remote)
	for i := range m.cfg.Rules {
		r := &m.cfg.Rules[i]
		if r.isFor(remote) && r.hasPort(t.LocalPort, t.RemotePort) {
			if r.Clear {
				return nil
			}
			return r
		}
	}
	return nil
}

// Flow implements stack.IPsec. If there is no flow yet, from an SA or Prepare, it returns one that never sends and that
// m does not keep, so that a flood of segments in the clear creates no flows.
func (m *Manager) Flow(t *tcp.Tuple) *stack.Flow {
	r := m.rule(t)
	if r == nil {
		return nil
	}
	k, _ := m.keyOf(r, t)
	if f := m.flows[k]; f != nil {
		return &f.Flow
	}
	return flowWithoutSAs(r.Mode, t)
}

// flowWithoutSAs returns the flow of a connection that has no SAs yet.
func flowWithoutSAs(mode esp.Mode, t *tcp.Tuple) *stack.Flow {
	return &stack.Flow{Shape: esp.Shape{Mode: mode, OuterV6: !t.Remote.Is4()}, Local: t.Local,
		Remote: t.Remote}
}

// Prepare implements stack.IPsec. It creates the flow of t.
func (m *Manager) Prepare(t *tcp.Tuple) {
	if r := m.rule(t); r != nil {
		k, _ := m.keyOf(r, t)
		m.flowOf(k)
	}
}

func (m *Manager) flowOf(k flowKey) *flow {
	f := m.flows[k]
	if f == nil {
		f = &flow{Flow: *flowWithoutSAs(k.mode, &tcp.Tuple{Local: k.local, Remote: k.remote})}
		f.Owner = f
		m.flows[k] = f
	}
	return f
}

// Want implements stack.IPsec. If out is not nil, it requests a successor of out from the IKE daemon, once for each SA.
// Otherwise it requests an SA at the next Expire. If wanted has an SA, that SA is at its hard limit, and is not used
// any more.
func (m *Manager) Want(wanted *stack.Flow, out *esp.Out) {
	f, ok := wanted.Owner.(*flow)
	if !ok { // from flowWithoutSAs
		return
	}
	sa := f.current
	if out != nil {
		if o := m.sas[sa]; o != nil && !o.asked {
			o.asked = true
			m.expire(sa, false)
		}
		return
	}
	if o := m.sas[sa]; o != nil { // the SA reached its hard limit
		f.current, o.spent = nil, true
		m.expire(sa, true)
	}
	f.wantsSA, f.retry, f.pause, m.next = true, 0, firstRetry, 0
}

// expire tells the IKE daemon that an SA reached a limit.
func (m *Manager) expire(sa *xfrm.SA, hard bool) {
	m.ask(func() error { return m.cfg.Kernel.Expire(sa, hard) })
}

func (m *Manager) ask(f func() error) {
	log, failed := m.cfg.Log, m.cfg.Failed
	m.cfg.Ask(func() {
		if err := f(); err != nil {
			log.Warn("IPsec: the kernel refused to ask the IKE daemon for an SA: connections wait", "error", err)
			if failed != nil {
				failed(err)
			}
		}
	})
}

// Update replaces the policies and SAs by those of the kernel.
func (m *Manager) Update(s *xfrm.Snapshot) {
	changed := !slices.Equal(m.policies, s.Policies)
	m.state, m.policies = s, s.Policies
	exists := func(sa *xfrm.SA) bool {
		return slices.Contains(s.Inbound, sa) || slices.Contains(s.Outbound, sa)
	}
	var gone []*esp.Out
	for sa, h := range m.sas {
		if exists(sa) {
			continue
		}
		m.steer("release", m.cfg.Steering.RemoveSA(sa.Dst, sa.Src, sa.SPI))
		m.total.add(h)
		if h.in != nil {
			m.stack.RemoveIn(&h.flow.Flow, h.in)
			h.in.Discard()
		} else {
			gone = append(gone, h.out)
		}
		delete(m.sas, sa)
	}
	for _, sa := range s.Inbound {
		if m.sas[sa] == nil {
			m.addIn(sa)
		}
	}
	maps.DeleteFunc(m.refused, func(sa *xfrm.SA, _ bool) bool { return !exists(sa) })
	if changed {
		m.regroup()
	}
	newest := map[*flow]*xfrm.SA{}
	for _, sa := range s.Outbound {
		if f := m.flowFor(sa, sa.Src, sa.Dst); f != nil {
			newest[f] = sa
		}
	}
	for _, k := range m.keys() {
		f := m.flows[k]
		m.sendWith(f, newest[f])
	}
	for _, out := range gone { // no flow sends with a deleted SA any more
		out.Discard()
	}
}

// Close discards the keys of all SAs. The thread of the Stack must have ended.
func (m *Manager) Close() {
	for _, h := range m.sas {
		if h.in != nil {
			h.in.Discard()
		} else {
			h.out.Discard()
		}
	}
}

// regroup moves connections and SAs to the flows of the current policies (RFC 4301, 4.4.1: cache entries must not
// outlive policy changes). A connection that no policy matches any more keeps its SAs (RFC 5044, 9.4).
func (m *Manager) regroup() {
	for sa, h := range m.sas {
		if h.in == nil {
			continue
		}
		if f := m.flowFor(sa, sa.Dst, sa.Src); f != nil && f != h.flow {
			h.flow = f
			m.stack.AddIn(&f.Flow, h.in)
		}
	}
	moved := m.stack.Move(func(e *stack.Endpoint) *stack.Flow {
		t := e.Tuple()
		if r := m.rule(&t); r != nil {
			if k, covered := m.keyOf(r, &t); covered {
				return &m.flowOf(k).Flow
			}
		}
		return nil
	})
	if moved > 0 {
		m.cfg.Log.Info("IPsec: policies changed: connections moved to other SAs",
			"connections", moved)
	}
}

// keys returns the keys of all flows in a fixed order, so that a simulation can be repeated.
func (m *Manager) keys() []flowKey {
	return slices.SortedFunc(maps.Keys(m.flows), func(a, b flowKey) int {
		return cmp.Or(bytes.Compare(a.local[:], b.local[:]),
			bytes.Compare(a.remote[:], b.remote[:]), cmp.Compare(a.mode, b.mode),
			a.ports.compare(b.ports))
	})
}

func (m *Manager) steer(what string, err error) {
	if err != nil {
		m.cfg.Log.Error("IPsec: SA not used: cannot steer its packets or use its key",
			"step", what, "error", err)
	}
}

// flowFor returns the flow of an SA, or nil if the SA is not usable here.
func (m *Manager) flowFor(sa *xfrm.SA, local, remote netip.Addr) *flow {
	if !m.cfg.Owns(local, remote) {
		return nil
	}
	key, used := m.keyOfSA(sa, local, remote)
	if !used { // its policies are gone: it stays with its connections
		if h := m.sas[sa]; h != nil {
			return h.flow
		}
	}
	var other *Rule
	for i := range m.cfg.Rules {
		r := &m.cfg.Rules[i]
		switch {
		case !r.isFor(remote) || r.Clear:
		case r.Mode == sa.Mode:
			return m.flowOf(key)
		default:
			other = r
		}
	}
	// Connections that were protected before the rules changed stay protected until they end.
	if f := m.flows[key]; f != nil {
		return f
	}
	if other != nil && !m.refused[sa] {
		m.refused[sa] = true
		m.cfg.Log.Error("IPsec: SA not used: its mode differs from the configuration", "sa",
			sa.String(), "mode", sa.Mode.String(), "want", other.Mode.String())
	}
	return nil
}

func (m *Manager) addIn(sa *xfrm.SA) {
	f := m.flowFor(sa, sa.Dst, sa.Src)
	if f == nil {
		return
	}
	in, err := esp.NewIn(&sa.SA, max(m.cfg.Window, sa.Window))
	if err == nil {
		err = m.cfg.Steering.AddSA(sa.Dst, sa.Src, sa.SPI)
	}
	if err != nil {
		m.steer("claim", fmt.Errorf("%v: %w", sa, err))
		return
	}
	m.stack.AddIn(&f.Flow, in)
	m.sas[sa] = &held{in: in, flow: f}
}

// sendWith makes f send with sa, or with none if sa is nil.
func (m *Manager) sendWith(f *flow, sa *xfrm.SA) {
	o := m.sas[sa]
	if o != nil && o.spent {
		sa = nil
	}
	switch {
	case sa == f.current:
		return
	case sa == nil:
		f.current = nil
		m.stack.SetOut(&f.Flow, nil)
		return
	case o == nil:
		out, err := esp.NewOut(&sa.SA, m.cfg.Random())
		if err != nil {
			m.steer("send", fmt.Errorf("%v: %w", sa, err))
			return
		}
		// If this fails, only ICMP errors about the SA's packets are lost.
		m.steer("claim", m.cfg.Steering.AddSA(sa.Dst, sa.Src, sa.SPI))
		o = &held{out: out}
		m.sas[sa] = o
	}
	if f.current != nil {
		m.total.Rekeys++
	}
	f.current, f.wantsSA, o.flow, f.HideDSCP = sa, false, f, sa.HideDSCP
	m.stack.SetOut(&f.Flow, o.out)
}

// Intervals of requests for an SA while packets wait, and of usage reports.
const (
	firstRetry = tick.Second
	maxRetry   = 30 * tick.Second
	accounting = 10 * tick.Second
)

// Deadline implements stack.IPsec. Zero means that Expire is due.
func (m *Manager) Deadline() tick.Time { return m.next }

// Expire implements stack.IPsec. It requests SAs for which packets wait, and reports the usage of all SAs to the
// kernel.
func (m *Manager) Expire(now tick.Time) {
	m.next = now.Add(firstRetry) // so that a panic below, if the caller contains it, does not repeat at once
	next := tick.Never
	var used map[*stack.Flow]bool
	for p, f := range m.flows {
		if f.wantsSA && f.retry <= now {
			if used == nil {
				used = m.usedFlows()
			}
			if !used[&f.Flow] { // the waiting connections gave up
				f.wantsSA = false
				m.stack.SetOut(&f.Flow, nil) // the next packet requests it again
				continue
			}
			f.retry, f.pause = now.Add(f.pause), min(2*f.pause, maxRetry)
			m.total.Requests++
			m.acquire(p)
		}
		if f.wantsSA {
			next = min(next, f.retry)
		}
	}
	if m.due <= now {
		m.due = now.Add(accounting)
		m.account()
	}
	m.next = min(next, m.due)
}

// account reports the usage of the SAs to the kernel, and requests successors of inbound SAs at their soft limits.
func (m *Manager) account() {
	m.forgetIdle()
	for sa, h := range m.sas {
		packets, bytes := h.used()
		m.ask(func() error { return m.cfg.Kernel.Account(sa, packets, bytes) })
		if h.in != nil && h.in.NeedsRekey() && !h.asked {
			h.asked = true
			m.expire(sa, false)
		}
	}
}

// errNoPolicy says that the IKE daemon has no policy for waiting connections.
var errNoPolicy = errors.New("no policy of the IKE daemon is for this peer, or none for its ports: " +
	"add a CHILD_SA with this mode, the engine's if_id and start_action = trap, whose local_ts and " +
	"remote_ts have the ports or none")

func (m *Manager) acquire(k flowKey) {
	local, remote := addrOf(k.local), addrOf(k.remote)
	for _, policy := range m.policies {
		if policy.Out && policy.Mode == k.mode && policy.Local.Contains(local) &&
			policy.Remote.Contains(remote) && policy.ForTCP() &&
			m.portsOf(policy, local, remote) == k.ports {
			m.ask(func() error { return m.cfg.Kernel.Acquire(policy) })
			return
		}
	}
	m.ask(func() error {
		return fmt.Errorf("%s to %s, mode %s: %w", local, remote, k.mode, errNoPolicy)
	})
}

func addrOf(a ip.Addr) netip.Addr { return netip.AddrFrom16(a).Unmap() }
