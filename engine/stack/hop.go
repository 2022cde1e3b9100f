package stack

import (
	"cmp"
	"container/list"
	"slices"

	"xwarp/tcp"
	"xwarp/tcp/ip"
	"xwarp/tcp/tick"
)

// hop is the next hop towards one remote address, shared by the connections to it. Segments go to its MAC, never to the
// source MAC of a received frame: otherwise a station that spoofs an IP address would receive our answers.
type hop struct {
	dst   ip.Addr
	mac   [6]byte
	known bool
	err   error       // why the resolver has no current answer, or nil
	users []*Endpoint // unordered
	asked tick.Time   // last request of revalidateHop
	fresh tick.Time   // last request of hopFor

	held []held // segments that wait until the hop is resolved

	used       tick.Time // last use, for a hop without users
	idle, near *list.Element
}

// held is a segment without a connection that waits for its next hop.
type held struct {
	t   tcp.Tuple
	out tcp.Out
}

// idleHops are the hops without a connection, in the order of their last use.
type idleHops struct {
	all  list.List              // of *hop, latest first
	near map[ip.Addr]*list.List // the same hops by network, each list in the same order
}

// network returns the addresses treated as one owner: 256 of IPv4, 2^64 of IPv6.
func network(a ip.Addr) ip.Addr {
	if a.Is4() {
		a[15] = 0
		return a
	}
	clear(a[8:])
	return a
}

func (i *idleHops) touch(h *hop, now tick.Time) {
	i.remove(h)
	h.used = now
	h.idle = i.all.PushFront(h)
	n := network(h.dst)
	l := i.near[n]
	if l == nil {
		l = &list.List{}
		if i.near == nil {
			i.near = map[ip.Addr]*list.List{}
		}
		i.near[n] = l
	}
	h.near = l.PushFront(h)
}

func (i *idleHops) remove(h *hop) {
	if h.idle == nil {
		return
	}
	i.all.Remove(h.idle)
	n := network(h.dst)
	l := i.near[n]
	if l.Remove(h.near); l.Len() == 0 {
		delete(i.near, n)
	}
	h.idle, h.near = nil, nil
}

// excess returns the idle hop to forget before a hop to dst is added: the least recently used of dst's network if that
// network has MaxHopsOfNetwork, else that of all networks if there are MaxHops, else nil.
func (i *idleHops) excess(dst ip.Addr) *hop {
	if l := i.near[network(dst)]; l != nil && l.Len() >= MaxHopsOfNetwork {
		return l.Back().Value.(*hop)
	}
	if i.all.Len() >= MaxHops {
		return i.all.Back().Value.(*hop)
	}
	return nil
}

// deadline returns when to forget the hop whose last use is the oldest.
func (i *idleHops) deadline() tick.Time {
	if last := i.all.Back(); last != nil {
		return last.Value.(*hop).used.Add(HopIdle)
	}
	return tick.Never
}

// hopFor returns the hop to dst. It asks the resolver for a new one. A hop without connections is confirmed, at most
// once per HopRetry, because the route may have changed.
func (s *Stack) hopFor(dst ip.Addr, now tick.Time) *hop {
	h := s.hops[dst]
	switch {
	case h == nil:
		if old := s.idle.excess(dst); old != nil {
			s.forgetHop(old)
		}
		h = &hop{dst: dst}
		s.hops[dst] = h
	case len(h.users) > 0:
		return h
	case now.Sub(h.fresh) < HopRetry:
		s.idle.touch(h, now)
		return h
	}
	s.idle.touch(h, now)
	h.fresh = now
	s.cfg.Resolver.Request(dst)
	return h
}

// forgetHop forgets h, which is unused, and the frames that wait for it.
func (s *Stack) forgetHop(h *hop) {
	s.idle.remove(h)
	s.drop(h)
	delete(s.hops, h.dst)
	s.cfg.Resolver.Forget(h.dst)
}

// drop discards the frames that wait for h.
func (s *Stack) drop(h *hop) {
	s.stats.DropNoHop += uint64(len(h.held))
	s.held -= len(h.held)
	h.held = nil
}

// expireHops forgets hops that have been unused for long.
func (s *Stack) expireHops(now tick.Time) {
	for s.idle.deadline() <= now {
		s.forgetHop(s.idle.all.Back().Value.(*hop))
	}
}

// answer sends o, a segment without a connection, to t.Remote. The segment waits until the next hop is resolved. If too
// many wait, it is dropped; the peer or a timer retransmits.
func (s *Stack) answer(t *tcp.Tuple, o *tcp.Out, now tick.Time) {
	h := s.hopTo(t, now)
	if h.known {
		s.reply(t, o, h.mac)
		return
	}
	s.stats.NoHop++
	if i := slices.IndexFunc(h.held, func(x held) bool { return x.t == *t }); i >= 0 {
		h.held[i].out = *o
		return
	}
	if len(h.held) >= MaxHeldOfHop || s.held >= MaxHeld {
		s.stats.DropNoHop++
		return
	}
	h.held = append(h.held, held{*t, *o})
	s.held++
}

// revalidateHop asks the resolver to confirm the hop of a connection whose segments are not acknowledged in time. The
// kernel sees none of these segments and would keep a dead address forever.
func (e *Endpoint) revalidateHop(now tick.Time) {
	h := e.hop
	if una := e.conn.SndUna(); una != e.unaAtLastRTO { // after one timeout, the acknowledgement may only be late
		e.unaAtLastRTO = una
		return
	}
	if h == nil || e.conn.SndUna() == e.conn.SndNxt() || now.Sub(h.asked) < HopRetry {
		return
	}
	h.asked = now
	e.stack.cfg.Resolver.Request(h.dst)
}

// setHop makes h the next hop of e; nil: none. A hop that loses its last connection is kept for a while for the next
// one.
func (e *Endpoint) setHop(h *hop, now tick.Time) {
	s := e.stack
	if old := e.hop; old != nil {
		last := len(old.users) - 1
		old.users[e.hopIdx] = old.users[last]
		old.users[e.hopIdx].hopIdx = e.hopIdx
		old.users[last] = nil
		old.users = old.users[:last]
		if last == 0 {
			s.idle.touch(old, now)
		}
	}
	e.hop = h
	if h != nil {
		s.idle.remove(h)
		e.hopIdx = len(h.users)
		h.users = append(h.users, e)
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

// SetHop is the resolver's answer for dst: its next hop has address mac, or err says why there is none. A known address
// stays in use after an error, because the kernel gives up on a neighbour sooner than TCP does.
func (s *Stack) SetHop(dst ip.Addr, mac [6]byte, err error) {
	h := s.hops[dst]
	if h == nil {
		return
	}
	if h.err = err; err != nil {
		s.drop(h)
		return
	}
	known := h.known
	h.mac, h.known = mac, true
	if known { // no frame waits for a known address
		return
	}
	for i := range h.held {
		s.reply(&h.held[i].t, &h.held[i].out, mac)
	}
	s.held -= len(h.held)
	h.held = nil
	waiting := slices.Clone(h.users)
	slices.SortFunc(waiting, func(a, b *Endpoint) int { return cmp.Compare(a.serial, b.serial) })
	for _, e := range waiting {
		s.mark(e)
	}
}
