package ipsec

import (
	"xwarp/engine/stack"
	"xwarp/tcp/tick"
)

// SetRules replaces the rules. Connections that the new rules protect in another way end: their peers get RST as the
// old rules have it. SetRules returns the number of these connections.
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
	for sa := range m.refused { // the reason may be gone
		delete(m.refused, sa)
	}
	m.Update(m.state)
	return len(others)
}

// maxIdleFlows is the number of flows that may be kept without use. A flow takes some 200 bytes.
const maxIdleFlows = 1024

// forgetIdle forgets the flows without SA and connection when there are too many.
func (m *Manager) forgetIdle() {
	if len(m.flows) <= maxIdleFlows {
		return
	}
	used := m.usedFlows()
	for _, in := range m.ins {
		used[in.flow] = true
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
