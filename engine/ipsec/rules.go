package ipsec

import (
	"net/netip"

	"xwarp/engine/stack"
	"xwarp/tcp/tick"
)

// SetRules replaces the rules. It resets connections whose protection changes, with an RST that is still protected as
// the old rules say. It returns the number of these connections.
func (m *Manager) SetRules(rules []Rule, now tick.Time) (ended int) {
	m.cfg.Rules = rules
	var others []*stack.Endpoint
	m.stack.Endpoints(func(e *stack.Endpoint) {
		t := e.Tuple()
		is, want := e.Flow(), m.rule(&t)
		if (is != nil) != (want != nil) || is != nil && is.Shape.Mode != want.Mode {
			others = append(others, e)
		}
	})
	for _, e := range others {
		e.Abort(now)
	}
	clear(m.refused) // the reasons may no longer apply
	m.Update(m.state)
	return len(others)
}

// maxIdleFlows is the number of flows above which unused flows are forgotten. A flow takes some 200 bytes.
const maxIdleFlows = 1024

// forgetIdle forgets all flows without SA and connection if there are more than maxIdleFlows flows.
func (m *Manager) forgetIdle() {
	if len(m.flows) <= maxIdleFlows {
		return
	}
	used := m.usedFlows()
	for _, h := range m.sas {
		if h.in != nil {
			used[&h.flow.Flow] = true
		}
	}
	for p, f := range m.flows {
		if f.current == nil && !used[&f.Flow] {
			delete(m.flows, p)
		}
	}
}

// usedFlows returns the flows that have connections.
func (m *Manager) usedFlows() map[*stack.Flow]bool {
	used := map[*stack.Flow]bool{}
	m.stack.Endpoints(func(e *stack.Endpoint) { used[e.Flow()] = true })
	return used
}

// Protected returns prefixes of peers. The value of a prefix is true if every connection with its peers must be
// protected. The longest prefix that matches a peer applies. A rule for some ports yields false, since the Stack, which
// knows the ports, enforces it. The result is nil if no prefix has true.
func Protected(rules []Rule) map[netip.Prefix]bool {
	prefixes := map[netip.Prefix]bool{
		netip.MustParsePrefix("0.0.0.0/0"): false, netip.MustParsePrefix("::/0"): false}
	for i := range rules {
		for _, p := range rules[i].Remote {
			prefixes[p.Masked()] = false
		}
	}
	any := false
	for p := range prefixes {
		for i := range rules {
			if r := &rules[i]; r.holds(p) {
				prefixes[p] = !r.Clear && len(r.Ports) == 0
				break
			}
		}
		any = any || prefixes[p]
	}
	if !any {
		return nil
	}
	return prefixes
}

// holds reports whether r matches all addresses of p.
func (r *Rule) holds(p netip.Prefix) bool {
	for _, q := range r.Remote {
		if q.Bits() <= p.Bits() && q.Contains(p.Addr()) {
			return true
		}
	}
	return len(r.Remote) == 0
}
