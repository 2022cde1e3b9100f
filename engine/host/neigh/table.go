package neigh

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// change handles a message from the kernel.
func (r *Resolver) change(kind uint16, body []byte) {
	n := decode(body)
	if n == nil || n.LinkIndex != r.link {
		return
	}
	r.telling.Lock()
	defer r.telling.Unlock()
	r.update(addr(n.IP), n, kind == unix.RTM_DELNEIGH)
}

// list reads the kernel's neighbour table and updates all next hops.
func (r *Resolver) list() error {
	r.telling.Lock()
	defer r.telling.Unlock()
	r.mu.Lock()
	gone := make(map[netip.Addr]bool, len(r.hops))
	for hop := range r.hops {
		gone[hop] = true
	}
	r.mu.Unlock()
	if len(gone) == 0 {
		return nil
	}
	known, err := r.handle.NeighList(r.link, unix.AF_UNSPEC)
	if err != nil {
		return err
	}
	for i := range known {
		hop := addr(known[i].IP)
		if gone[hop] {
			delete(gone, hop)
			r.update(hop, &known[i], false)
		}
	}
	for hop := range gone {
		r.update(hop, nil, true)
	}
	return nil
}

// update reports the kernel's entry n of hop for all destinations behind hop, unless the kernel is still resolving it.
// If the entry was deleted, update makes the kernel resolve hop again.
func (r *Resolver) update(hop netip.Addr, n *netlink.Neigh, deleted bool) {
	r.mu.Lock()
	at := r.hops[hop]
	if at == nil {
		r.mu.Unlock()
		return
	}
	dsts := slices.Collect(maps.Keys(at.dsts))
	r.mu.Unlock()
	if deleted {
		n = nil
	}
	r.note(hop, n, false)
	var h Hop
	switch {
	case deleted:
		if h.Err = r.use(hop); h.Err == nil {
			return
		}
	case usable(n):
		h.MAC = [6]byte(n.HardwareAddr)
	case n.State&netlink.NUD_FAILED != 0:
		h.Err = &UnreachableError{hop, r.linkName()}
	default:
		return
	}
	for _, h.Dst = range dsts {
		r.notify(h)
	}
}

// linkName returns the current name of the interface.
func (r *Resolver) linkName() string {
	l, err := r.handle.LinkByIndex(r.link)
	if err != nil {
		return fmt.Sprintf("interface index %d", r.link)
	}
	return l.Attrs().Name
}

// use makes the kernel resolve or confirm hop, as one of its own packets would. It must not be used for fixed entries,
// which since Linux 5.16 would become ordinary ones without an address.
func (r *Resolver) use(hop netip.Addr) error {
	err := r.handle.NeighSet(&netlink.Neigh{
		LinkIndex: r.link, Family: family(hop), IP: hop.AsSlice(), Flags: netlink.NTF_USE,
	})
	if err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("neighbour %v: %w", hop, err)
	}
	return nil
}
