package stack

import (
	"xwarp/tcp/ip"
	"xwarp/tcp/tick"
)

// hop is the next hop towards one remote address, shared by the connections to it.
type hop struct {
	dst   ip.Addr
	mac   [6]byte
	known bool
	users int
	asked tick.Time // when the resolver was last told that frames may not arrive
	fresh tick.Time // when the resolver was last asked on behalf of a new connection
}

// hopFor returns the hop to dst and asks the resolver when it is new. One that no connection had is used as it is, and confirmed
// now and then: the route may lead elsewhere.
func (s *Stack) hopFor(dst ip.Addr, now tick.Time) *hop {
	h := s.hops[dst]
	if h == nil {
		h = &hop{dst: dst}
		s.hops[dst] = h
	} else if h.users > 0 || now.Sub(h.fresh) < HopRetry {
		return h
	}
	h.fresh = now
	s.cfg.Resolver.Request(dst)
	return h
}

// leave forgets h when nothing uses it, unless the next connection can start with it.
func (s *Stack) leave(h *hop) {
	if h.users == 0 && (!h.known || len(s.hops) > MaxIdleHops) {
		delete(s.hops, h.dst)
		s.cfg.Resolver.Forget(h.dst)
	}
}

// guess fills a hop that nobody answered for yet with where a frame from it came from.
func (h *hop) guess(mac [6]byte) {
	if !h.known {
		h.mac, h.known = mac, true
	}
}

// doubt asks the resolver to confirm the hop of a connection whose segments are not acknowledged in time: the kernel sees none
// of them, and would keep an address for ever that answers no more.
func (e *Endpoint) doubt(now tick.Time) {
	h := e.hop
	if una := e.conn.SndUna(); una != e.late { // the first time it is only late
		e.late = una
		return
	}
	if h == nil || e.conn.SndUna() == e.conn.SndNxt() || now.Sub(h.asked) < HopRetry {
		return
	}
	h.asked = now
	e.stack.cfg.Resolver.Request(h.dst)
}

// setHop moves e to h; nil leaves the old one.
func (e *Endpoint) setHop(h *hop) {
	if old := e.hop; old != nil {
		old.users--
		e.stack.leave(old)
	}
	e.hop = h
	if h != nil {
		h.users++
	}
}

// ready reports whether frames can be sent to h.
func (h *hop) ready(s *Stack) bool {
	if h == nil {
		return false
	}
	if !h.known {
		s.stats.NoHop++
	}
	return h.known
}

// SetHop is the resolver's answer for dst: its next hop has address mac. With ok false the next hop does not answer;
// an address that was known stays in use, because the kernel gives up on a neighbour sooner than TCP does.
func (s *Stack) SetHop(dst ip.Addr, mac [6]byte, ok bool) {
	h := s.hops[dst]
	if h == nil || !ok {
		return
	}
	h.mac, h.known = mac, true
	for _, e := range s.eldestFirst(func(e *Endpoint) bool { return e.hop == h }) {
		s.mark(e)
	}
}
