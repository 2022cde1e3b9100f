package transfer

import (
	"context"
	"net/netip"
	"slices"
)

// room shares the memory for bytes other than the region's content. Region.mu guards it.
type room struct {
	all, share int64 // maximum bytes: of all clients, of those of one address
	used       int64
	owned      map[netip.Prefix]int64
	queue      []*claim // in order of arrival
}

// claim is a waiting request for n bytes in room.queue.
type claim struct {
	who     netip.Prefix
	n       int64
	granted chan struct{}
}

// owner returns the prefix that counts as one owner: with IPv6 a /64.
func owner(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := 32
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits)
	return p
}

// grant serves the claims that fit, in order of arrival. It skips a claim whose owner has used its share. One for which
// too little is left blocks later ones, or small puts would starve a large one. It reports whether there is one of the
// latter.
func (r *room) grant() (short bool) {
	for i := 0; i < len(r.queue); {
		c := r.queue[i]
		switch {
		case r.owned[c.who]+c.n > r.share:
			i++
			continue
		case r.used+c.n > r.all:
			return true
		}
		r.used += c.n
		r.owned[c.who] += c.n
		close(c.granted)
		r.queue = slices.Delete(r.queue, i, i+1)
	}
	return r.used > r.all
}

func (r *room) refund(who netip.Prefix, n int64) {
	r.used -= n
	if r.owned[who] -= n; r.owned[who] == 0 {
		delete(r.owned, who)
	}
}

// reserve waits for n bytes of memory.
func (r *Region) reserve(ctx context.Context, who netip.Prefix, n int64) error {
	c := &claim{who, n, make(chan struct{})}
	r.mu.Lock()
	r.room.queue = append(r.room.queue, c)
	r.settle()
	r.mu.Unlock()
	select {
	case <-c.granted:
		return nil
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(r.room.queue, c); i >= 0 {
		r.room.queue = slices.Delete(r.room.queue, i, i+1)
	} else {
		r.room.refund(who, n) // granted at the same moment
	}
	r.settle()
	return context.Cause(ctx)
}

// unreserve is the inverse of reserve.
func (r *Region) unreserve(who netip.Prefix, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.room.refund(who, n)
	r.settle()
}

// settle grants the reservations that fit. If that is not enough, it ends gets of the oldest replaced content to free
// its memory: a put never waits for a get. r.mu is held.
func (r *Region) settle() {
	if r.room.grant() && len(r.past) > 0 {
		r.past[0].revoke(errReplaced)
	}
}

// contended reports whether a put waits for memory that the end of a put of peer who would free: the waiting put is of
// the same peer, or the room has too few bytes left for it.
func (r *Region) contended(who netip.Prefix) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.room.queue, func(c *claim) bool {
		return c.who == who || r.room.used+c.n > r.room.all
	})
}
