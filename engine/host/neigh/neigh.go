// Package neigh asks the kernel how to reach a destination: by which source address, next hop and MAC address. The
// kernel does ARP and neighbour discovery; this package follows its tables, so that the engine needs no tables of its
// own.
package neigh

import (
	"container/list"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"xwarp/engine/host/netwatch"
	"xwarp/engine/wake"
)

// UnreachableError is a Hop's error if the next hop does not answer ARP or, for IPv6, neighbour discovery. It matches
// EHOSTUNREACH.
type UnreachableError struct {
	NextHop   netip.Addr
	Interface string
}

func (e *UnreachableError) Error() string {
	by := "neighbour discovery"
	if e.NextHop.Is4() {
		by = "ARP"
	}
	return fmt.Sprintf("%s got no answer for %v on %s: is that host up, and on the same link? (see: ip neigh show %[2]v)",
		by, e.NextHop, e.Interface)
}

// Unwrap returns EHOSTUNREACH, as connect(2) reports it.
func (e *UnreachableError) Unwrap() error { return unix.EHOSTUNREACH }

// Route is the route to a destination through the interface of a Resolver.
type Route struct {
	Source  netip.Addr // selected by the kernel
	NextHop netip.Addr // the destination itself if it is on the link
	MTU     int        // of the route in bytes; 0 if it sets none
	Local   bool       // the destination is this host: packets to it use lo
}

// loopback is the interface index of lo in each network namespace.
const loopback = 1

// Hop is the link-layer answer for a destination.
type Hop struct {
	Dst netip.Addr
	MAC [6]byte
	Err error // why MAC is not valid, such as no route, or a silent next hop; a later Hop may have a MAC
}

// Resolver follows the neighbour table of one interface. Its methods may be called from any goroutine.
type Resolver struct {
	link   int
	handle *netlink.Handle
	one    *nl.SocketHandle // for requests for a single entry
	notify func(Hop)
	watch  *netwatch.Watch
	done   chan struct{}
	wake   wake.Flag
	ended  sync.WaitGroup

	// held from reading the kernel's table to notify, so that answers arrive in order
	telling sync.Mutex

	mu      sync.Mutex
	dsts    map[netip.Addr]*destination
	hops    map[netip.Addr]*nextHop
	recent  list.List                 // of *destination, most recently requested first
	pending list.List                 // of *destination to be resolved, oldest first
	routes  map[netip.Addr]knownRoute // see Route
}

// knownRoute is a cached result of Lookup.
type knownRoute struct {
	Route
	until time.Time
}

// nextHop is a next hop on the link, with the destinations behind it.
type nextHop struct {
	dsts  map[netip.Addr]bool
	mac   [6]byte
	known bool      // mac is the kernel's latest answer
	asked time.Time // when the kernel was last asked to resolve and confirm it
}

// destination is an address that was requested and not forgotten.
type destination struct {
	addr   netip.Addr
	hop    netip.Addr // invalid before its route is looked up
	recent *list.Element
	queued *list.Element // in pending; nil if it is not there
}

// New starts to follow the neighbour table of the interface with index link, in the network namespace of the calling
// thread. notify is called for each answer and each later change, by one goroutine at a time. log may be nil.
func New(link int, log *slog.Logger, notify func(Hop)) (*Resolver, error) {
	runtime.LockOSThread() // create all sockets on this thread
	defer runtime.UnlockOSThread()
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("neighbour table: netlink socket: %w", err)
	}
	r := &Resolver{
		link: link, handle: h, notify: notify,
		done:   make(chan struct{}),
		wake:   wake.New(),
		dsts:   map[netip.Addr]*destination{},
		hops:   map[netip.Addr]*nextHop{},
		routes: map[netip.Addr]knownRoute{},
	}
	if r.one, err = netwatch.Socket(unix.NETLINK_ROUTE); err == nil {
		r.watch, err = netwatch.Follow(netwatch.Options{
			Name: "neighbour table", Groups: []int{unix.RTNLGRP_NEIGH}, Change: r.change,
			List: r.list, Log: log,
		})
	}
	if err != nil {
		r.closeSockets()
		return nil, fmt.Errorf("neighbour table: %w", err)
	}
	r.ended.Add(1)
	go r.resolveLoop()
	return r, nil
}

// Close stops following. No notification follows after it returns.
func (r *Resolver) Close() {
	close(r.done)
	r.watch.Close()
	r.ended.Wait()
	r.closeSockets()
}

func (r *Resolver) closeSockets() {
	r.handle.Close()
	if r.one != nil {
		r.one.Close()
	}
}

// Watch returns the watch of the table, for its state and counters.
func (r *Resolver) Watch() *netwatch.Watch { return r.watch }

// Len returns the number of followed destinations.
func (r *Resolver) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.dsts)
}

// Lookup asks the kernel for the route to dst. It fails if dst is neither reached through the interface nor an address
// of this host.
func (r *Resolver) Lookup(dst netip.Addr) (Route, error) {
	if r.isLocal(dst) {
		return Route{Source: dst, NextHop: dst, Local: true}, nil
	}
	routes, err := r.handle.RouteGetWithOptions(dst.AsSlice(),
		&netlink.RouteGetOptions{OifIndex: r.link})
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
	return Route{}, fmt.Errorf("%v is not reached through %s (see: ip route get %[1]v)", dst,
		r.linkName())
}

// isLocal asks the kernel whether dst is an address of this host. A link-local dst is looked up only on the interface
// of r: there, the address of another interface of this host is a neighbour.
func (r *Resolver) isLocal(dst netip.Addr) bool {
	o := &netlink.RouteGetOptions{}
	if dst.IsLinkLocalUnicast() {
		o.OifIndex = r.link
	}
	return anyLocal(r.handle.RouteGetWithOptions(dst.AsSlice(), o))
}

// IsLocal reports whether a connection from the calling thread's network namespace to an address reaches this host.
func IsLocal(dst netip.Addr) bool {
	return dst.IsUnspecified() || anyLocal(netlink.RouteGet(dst.AsSlice()))
}

func anyLocal(routes []netlink.Route, err error) bool {
	return err == nil && slices.ContainsFunc(routes, func(k netlink.Route) bool {
		return k.Type == unix.RTN_LOCAL && k.LinkIndex == loopback
	})
}

// Route returns the cached result of Lookup if it is younger than RouteAge and ForgetRoutes was not called since.
// Otherwise it calls Lookup. Errors are not cached.
func (r *Resolver) Route(dst netip.Addr) (Route, error) {
	r.mu.Lock()
	k, now := r.routes[dst], time.Now()
	r.mu.Unlock()
	if now.Before(k.until) {
		return k.Route, nil
	}
	rt, err := r.Lookup(dst)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.routes) >= MaxRoutes {
		clear(r.routes)
	}
	if delete(r.routes, dst); err == nil {
		r.routes[dst] = knownRoute{rt, now.Add(RouteAge)}
	}
	return rt, err
}

// ForgetRoutes drops all cached routes. It must be called after changes of the host's addresses or routes.
func (r *Resolver) ForgetRoutes() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.routes)
}

// Request requests the MAC address of dst's next hop. notify gets the answer and later changes until Forget. A further
// Request for dst makes the kernel confirm the address, unless it was asked for the next hop less than HopAge ago, or
// the entry is permanent. It has no effect while an earlier Request for dst still waits. Request never blocks. At
// MaxDestinations, the destination that was requested least recently is forgotten.
func (r *Resolver) Request(dst netip.Addr) {
	r.mu.Lock()
	d := r.dsts[dst]
	if d == nil {
		if len(r.dsts) >= MaxDestinations {
			r.drop(r.recent.Back().Value.(*destination))
		}
		d = &destination{addr: dst}
		d.recent = r.recent.PushFront(d)
		r.dsts[dst] = d
	} else {
		r.recent.MoveToFront(d.recent)
	}
	if d.queued == nil {
		d.queued = r.pending.PushBack(d)
	}
	r.mu.Unlock()
	r.wake.Set()
}

// Forget ends the notifications for dst.
func (r *Resolver) Forget(dst netip.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d := r.dsts[dst]; d != nil {
		r.drop(d)
	}
}

// drop forgets d. It is called with mu held.
func (r *Resolver) drop(d *destination) {
	delete(r.dsts, d.addr)
	r.recent.Remove(d.recent)
	if d.queued != nil {
		r.pending.Remove(d.queued)
		d.queued = nil
	}
	r.leave(d)
}

// leave removes d from the destinations of its hop, and drops a hop without destinations. It is called with mu held.
func (r *Resolver) leave(d *destination) {
	if h := r.hops[d.hop]; h != nil {
		delete(h.dsts, d.addr)
		if len(h.dsts) == 0 {
			delete(r.hops, d.hop)
		}
	}
}

func (r *Resolver) resolveLoop() {
	defer r.ended.Done()
	for {
		select {
		case <-r.done:
			return
		case <-r.wake:
			r.resolvePending()
		}
	}
}

func (r *Resolver) resolvePending() {
	for {
		select {
		case <-r.done:
			return
		default:
		}
		r.mu.Lock()
		front := r.pending.Front()
		if front == nil {
			r.mu.Unlock()
			return
		}
		d := r.pending.Remove(front).(*destination)
		d.queued = nil
		r.mu.Unlock()
		r.resolve(d)
	}
}

// resolve looks up the route to d, follows its next hop, and reports the kernel's answer for the next hop.
func (r *Resolver) resolve(d *destination) {
	r.telling.Lock()
	defer r.telling.Unlock()
	rt, err := r.Lookup(d.addr)
	if rt.Local {
		err = fmt.Errorf("%v is an address of this host and has no next hop", d.addr)
	}
	if err == nil && r.setHop(d, rt.NextHop) && !r.answerFromKnown(d.addr, rt.NextHop) {
		var n *netlink.Neigh
		if n, err = r.neighbour(rt.NextHop); n != nil && usable(n) {
			r.notify(Hop{Dst: d.addr, MAC: [6]byte(n.HardwareAddr)})
		}
		if err == nil && (n == nil || n.State&fixed == 0) {
			err = r.use(rt.NextHop)
		}
		r.note(rt.NextHop, n, err == nil)
	}
	if err != nil {
		r.notify(Hop{Dst: d.addr, Err: err})
	}
}

// answerFromKnown reports the known MAC address of hop for dst, if the kernel was asked to resolve and confirm hop less
// than HopAge ago. Otherwise it returns false.
func (r *Resolver) answerFromKnown(dst, hop netip.Addr) bool {
	r.mu.Lock()
	h := r.hops[hop]
	if h == nil || !h.known || time.Since(h.asked) > HopAge {
		r.mu.Unlock()
		return false
	}
	mac := h.mac
	r.mu.Unlock()
	r.notify(Hop{Dst: dst, MAC: mac})
	return true
}

// note stores the kernel's entry of hop, or nil if there is none. asked means that the kernel was just asked to confirm
// the entry, or that the entry is permanent: then answerFromKnown may use it for HopAge.
func (r *Resolver) note(hop netip.Addr, n *netlink.Neigh, asked bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.hops[hop]
	if h == nil {
		return
	}
	if h.known = n != nil && usable(n); h.known {
		h.mac = [6]byte(n.HardwareAddr)
	}
	if asked {
		h.asked = time.Now()
	}
}

// setHop sets the hop of d. It returns false if d was forgotten in the meantime.
func (r *Resolver) setHop(d *destination, hop netip.Addr) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dsts[d.addr] != d {
		return false
	}
	if d.hop != hop {
		r.leave(d)
		d.hop = hop
	}
	if r.hops[hop] == nil {
		r.hops[hop] = &nextHop{dsts: map[netip.Addr]bool{}}
	}
	r.hops[hop].dsts[d.addr] = true
	return true
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
