// Package neigh asks the kernel how a destination is reached: which source address, which next hop,
// which link-layer address. The kernel keeps doing ARP and neighbour discovery; this package follows
// its tables, so that the engine never has one of its own.
package neigh

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// MaxDestinations bounds the destinations followed, against a flood of SYNs with made-up sources.
const MaxDestinations = 65536

// ErrUnreachable is wrapped by a Hop's error when the next hop answers neither ARP nor neighbour discovery.
var ErrUnreachable = errors.New("next hop does not answer")

// Route says how a destination is reached through the interface of a Resolver.
type Route struct {
	Source  netip.Addr // the kernel's choice for packets to the destination
	NextHop netip.Addr // the destination itself when it is on the link
	MTU     int        // of the route in octets; 0 when the route sets none
}

// Hop is the link-layer answer for a destination.
type Hop struct {
	Dst netip.Addr
	MAC [6]byte
	Err error // non-nil when the kernel gave the next hop up; a later Hop may heal it
}

// Resolver follows the neighbour table of one interface. Its methods may be called from any goroutine.
type Resolver struct {
	link    int
	handle  *netlink.Handle
	notify  func(Hop)
	updates chan netlink.NeighUpdate
	done    chan struct{}
	wake    chan struct{}
	ended   sync.WaitGroup

	mu      sync.Mutex
	pending []netip.Addr
	dsts    map[netip.Addr]netip.Addr          // destination -> next hop
	users   map[netip.Addr]map[netip.Addr]bool // next hop -> destinations
}

// New starts to follow the neighbour table of the interface with index link, in the network namespace of
// the calling thread. notify is called from the resolver's goroutine for each answer and each later change.
func New(link int, notify func(Hop)) (*Resolver, error) {
	runtime.LockOSThread() // both sockets are made on this thread
	defer runtime.UnlockOSThread()
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("neighbour table: netlink socket: %w", err)
	}
	r := &Resolver{
		link: link, handle: h, notify: notify,
		updates: make(chan netlink.NeighUpdate, 256),
		done:    make(chan struct{}),
		wake:    make(chan struct{}, 1),
		dsts:    map[netip.Addr]netip.Addr{},
		users:   map[netip.Addr]map[netip.Addr]bool{},
	}
	if err := netlink.NeighSubscribe(r.updates, r.done); err != nil {
		h.Close()
		return nil, fmt.Errorf("neighbour table: subscription: %w", err)
	}
	r.ended.Add(1)
	go r.run()
	return r, nil
}

// Close ends the subscription; no notification comes after it returned.
func (r *Resolver) Close() {
	close(r.done)
	r.ended.Wait()
	r.handle.Close()
}

// Lookup asks the kernel for the route to dst. It fails when dst is not reached through the interface.
func (r *Resolver) Lookup(dst netip.Addr) (Route, error) {
	routes, err := r.handle.RouteGetWithOptions(dst.AsSlice(), &netlink.RouteGetOptions{OifIndex: r.link})
	if err != nil {
		return Route{}, fmt.Errorf("no route to %v: %w (see: ip route get %v)", dst, err, dst)
	}
	for _, k := range routes {
		if k.LinkIndex != r.link {
			continue
		}
		rt := Route{NextHop: dst, MTU: k.MTU, Source: addr(k.Src)}
		if gw := addr(k.Gw); gw.IsValid() {
			rt.NextHop = gw
		}
		return rt, nil
	}
	return Route{}, fmt.Errorf("%v is not reached through interface index %d (see: ip route get %v)", dst, r.link, dst)
}

// Request asks for the link-layer address of dst's next hop; the answer goes to notify. Asking again makes
// the kernel confirm the address. It never blocks.
func (r *Resolver) Request(dst netip.Addr) {
	r.mu.Lock()
	if len(r.pending) < MaxDestinations {
		r.pending = append(r.pending, dst)
	}
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Forget ends the notifications for dst.
func (r *Resolver) Forget(dst netip.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if hop, ok := r.dsts[dst]; ok {
		delete(r.dsts, dst)
		delete(r.users[hop], dst)
		if len(r.users[hop]) == 0 {
			delete(r.users, hop)
		}
	}
}

func (r *Resolver) run() {
	defer r.ended.Done()
	for {
		select {
		case <-r.done:
			return
		case <-r.wake:
			r.resolvePending()
		case u, ok := <-r.updates:
			if !ok {
				return
			}
			if u.LinkIndex == r.link {
				r.update(u)
			}
		}
	}
}

func (r *Resolver) resolvePending() {
	r.mu.Lock()
	todo := r.pending
	r.pending = nil
	r.mu.Unlock()
	for _, dst := range todo {
		if err := r.resolve(dst); err != nil {
			r.notify(Hop{Dst: dst, Err: err})
		}
	}
}

func (r *Resolver) resolve(dst netip.Addr) error {
	rt, err := r.Lookup(dst)
	if err != nil {
		return err
	}
	r.mu.Lock()
	if _, known := r.dsts[dst]; !known && len(r.dsts) >= MaxDestinations {
		r.mu.Unlock()
		return fmt.Errorf("%d destinations are followed already", MaxDestinations)
	}
	r.dsts[dst] = rt.NextHop
	if r.users[rt.NextHop] == nil {
		r.users[rt.NextHop] = map[netip.Addr]bool{}
	}
	r.users[rt.NextHop][dst] = true
	r.mu.Unlock()

	known, err := r.handle.NeighList(r.link, family(rt.NextHop))
	if err != nil {
		return fmt.Errorf("neighbour table: %w", err)
	}
	for i := range known {
		if addr(known[i].IP) == rt.NextHop && usable(&known[i]) {
			r.notify(Hop{Dst: dst, MAC: [6]byte(known[i].HardwareAddr)})
		}
	}
	return r.use(rt.NextHop)
}

// use makes the kernel resolve or confirm hop, as a packet of its own to it would.
func (r *Resolver) use(hop netip.Addr) error {
	err := r.handle.NeighSet(&netlink.Neigh{
		LinkIndex: r.link, Family: family(hop), IP: hop.AsSlice(), Flags: netlink.NTF_USE,
	})
	if err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("neighbour %v: %w", hop, err)
	}
	return nil
}

func (r *Resolver) update(u netlink.NeighUpdate) {
	hop := addr(u.IP)
	r.mu.Lock()
	dsts := make([]netip.Addr, 0, len(r.users[hop]))
	for d := range r.users[hop] {
		dsts = append(dsts, d)
	}
	r.mu.Unlock()
	if len(dsts) == 0 {
		return
	}
	var h Hop
	switch {
	case u.Type == unix.RTM_DELNEIGH:
		r.use(hop)
		return
	case usable(&u.Neigh):
		h.MAC = [6]byte(u.HardwareAddr)
	case u.State&netlink.NUD_FAILED != 0:
		h.Err = fmt.Errorf("%w: %v on interface index %d (see: ip neigh show %v)", ErrUnreachable, hop, r.link, hop)
	default:
		return
	}
	for _, h.Dst = range dsts {
		r.notify(h)
	}
}

func usable(n *netlink.Neigh) bool {
	const good = netlink.NUD_REACHABLE | netlink.NUD_STALE | netlink.NUD_DELAY | netlink.NUD_PROBE | netlink.NUD_PERMANENT | netlink.NUD_NOARP
	return n.State&good != 0 && len(n.HardwareAddr) == 6
}

func family(a netip.Addr) int {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func addr(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	if a.IsUnspecified() {
		return netip.Addr{}
	}
	return a.Unmap()
}
