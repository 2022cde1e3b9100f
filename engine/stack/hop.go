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
// source MAC of a received frame. Otherwise a host on the link that spoofs an IP address would receive our answers.
type hop struct {
	dst   ip.Addr
	mac   [6]byte
	known bool
	users []*Endpoint // in no order
	asked tick.Time   // when the resolver was last told that frames may not arrive
	fresh tick.Time   // when the resolver was last asked on behalf of something new

	held []held // for when it is known

	used       tick.Time // when it was last wanted, of one without users
	idle, near *list.Element
}

// held is a segment without a connection that waits for its next hop.
type held struct {
	t   tcp.Tuple
	out tcp.Out
}

// idleHops are the hops that no connection uses, in the order in which they were last wanted.
type idleHops struct {
	all  list.List              // of *hop, the latest in front
	near map[ip.Addr]*list.List // the same by network
}

// network returns the addresses that one owner is taken to have: 256 of IPv4, 2^64 of IPv6.
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

// excess returns a hop to be forgotten before there is another one towards dst, nil for none: of dst's
// network when that has its share.
func (i *idleHops) excess(dst ip.Addr) *hop {
	if l := i.near[network(dst)]; l != nil && l.Len() >= MaxHopsOfNetwork {
		return l.Back().Value.(*hop)
	}
	if i.all.Len() >= MaxHops {
		return i.all.Back().Value.(*hop)
	}
	return nil
}

// deadline returns when the oldest one is to be forgotten.
func (i *idleHops) deadline() tick.Time {
	if last := i.all.Back(); last != nil {
		return last.Value.(*hop).used.Add(HopIdle)
	}
	return tick.Never
}

// hopFor returns the hop to dst and asks the resolver when it is new. One that no connection had is used as
// it is, and confirmed now and then, because the route may lead elsewhere.
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

// forgetHop forgets h, which nothing uses, and the frames that wait for it.
func (s *Stack) forgetHop(h *hop) {
	s.idle.remove(h)
	s.drop(h)
	delete(s.hops, h.dst)
	s.cfg.Resolver.Forget(h.dst)
}

// drop forgets the frames that wait for h.
func (s *Stack) drop(h *hop) {
	s.stats.DropNoHop += uint64(len(h.held))
	s.held -= len(h.held)
	h.held = nil
}

// expireHops forgets the hops that nothing wanted for long.
func (s *Stack) expireHops(now tick.Time) {
	for s.idle.deadline() <= now {
		s.forgetHop(s.idle.all.Back().Value.(*hop))
	}
}

// answer sends o, a segment without a connection, to t.Remote. When its next hop is not known yet it waits
// for that; the peer or a timer sends again what has no room.
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

// revalidateHop asks the resolver to confirm the hop of a connection whose segments are not acknowledged in time: the
// kernel sees none of them, and would keep an address for ever that answers no more.
func (e *Endpoint) revalidateHop(now tick.Time) {
	h := e.hop
	if una := e.conn.SndUna(); una != e.unaAtLastRTO { // the first time it is only late
		e.unaAtLastRTO = una
		return
	}
	if h == nil || e.conn.SndUna() == e.conn.SndNxt() || now.Sub(h.asked) < HopRetry {
		return
	}
	h.asked = now
	e.stack.cfg.Resolver.Request(h.dst)
}

// setHop moves e to h; nil leaves the old one, which the next connection can begin with.
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

// SetHop is the resolver's answer for dst: its next hop has address mac. With ok false the next hop does not answer;
// an address that was known stays in use, because the kernel gives up on a neighbour sooner than TCP does.
func (s *Stack) SetHop(dst ip.Addr, mac [6]byte, ok bool) {
	h := s.hops[dst]
	switch {
	case h == nil:
		return
	case !ok:
		s.drop(h)
		return
	}
	known := h.known
	h.mac, h.known = mac, true
	if known { // nothing waits
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
