package neigh

import (
	"encoding/binary"
	"errors"
	"flag"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"xwarp/bpf/needs"
)

var (
	flaps     = flag.Int("flaps", 3, "how often the link of TestFlaps goes down")
	addresses = flag.Int("addresses", 3000, "how many destinations TestManyDestinations asks for")
)

// host is a namespace with a veth, whose route to 128.0.0.0/1 uses the gateway 10.0.0.2.
type host struct {
	t    *testing.T
	nl   *netlink.Handle
	link netlink.Link
	r    *Resolver

	mu      sync.Mutex
	last    map[netip.Addr]Hop // the resolver's latest report for each destination
	refused int
	stop    sync.Mutex // hear waits while it is held
}

var gateway = net.IPv4(10, 0, 0, 2)

// onHost runs f on a thread in its own namespace, with a resolver.
func onHost(t *testing.T, f func(h *host)) {
	t.Helper()
	needs.NetNS(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		h := &host{t: t, last: map[netip.Addr]Hop{}}
		if err := h.build(); err != nil {
			t.Error(err)
			return
		}
		defer h.nl.Close()
		defer h.r.Close()
		f(h)
	}()
	<-done
}

func (h *host) build() (err error) {
	if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	if h.nl, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return err
	}
	a := netlink.NewLinkAttrs()
	a.Name = "v0"
	v := netlink.NewVeth(a)
	v.PeerName = "v1"
	if err = h.nl.LinkAdd(v); err != nil {
		return err
	}
	for _, n := range []string{"v1", "v0"} {
		if h.link, err = h.nl.LinkByName(n); err != nil {
			return err
		}
		if err = h.nl.LinkSetUp(h.link); err != nil {
			return err
		}
	}
	ad, _ := netlink.ParseAddr("10.0.0.1/8")
	if err = errors.Join(h.nl.AddrAdd(h.link, ad), h.route()); err != nil {
		return err
	}
	h.r, err = New(h.link.Attrs().Index, nil, h.hear)
	return err
}

// route gives the gateway its MAC address and routes 128.0.0.0/1 there.
func (h *host) route() error {
	h.neighbour(gateway, 9)
	return h.nl.RouteReplace(&netlink.Route{
		LinkIndex: h.link.Attrs().Index, Gw: gateway, Dst: &net.IPNet{IP: net.IPv4(128, 0, 0, 0),
			Mask: net.CIDRMask(1, 32)},
	})
}

func (h *host) neighbour(ip net.IP, mac byte) {
	h.nl.NeighSet(&netlink.Neigh{
		LinkIndex: h.link.Attrs().Index, IP: ip, State: netlink.NUD_PERMANENT,
		HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, mac},
	})
}

func (h *host) hear(x Hop) {
	h.stop.Lock()
	defer h.stop.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last[x.Dst] = x
	if x.Err != nil {
		h.refused++
	}
}

func (h *host) heard(dst netip.Addr, mac byte) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	x, ok := h.last[dst]
	return ok && x.Err == nil && x.MAC[5] == mac
}

func (h *host) eventually(what string, f func() bool) {
	h.t.Helper()
	for end := time.Now().Add(20 * time.Second); !f(); time.Sleep(200 * time.Microsecond) {
		if time.Now().After(end) {
			h.t.Error("not so after 20 s: " + what)
			return
		}
	}
}

// distant returns a destination behind the gateway.
func distant(i int) netip.Addr {
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, 128<<24+uint32(i))))
}

func TestAnswersAndChanges(t *testing.T) {
	onHost(t, func(h *host) {
		near := netip.MustParseAddr("10.0.0.7")
		h.neighbour(near.AsSlice(), 7)
		h.r.Request(near)
		h.r.Request(distant(1))
		h.eventually("answers", func() bool { return h.heard(near, 7) && h.heard(distant(1), 9) })
		h.neighbour(gateway, 10)
		h.eventually("the gateway's new address", func() bool { return h.heard(distant(1), 10) })
		h.r.Forget(distant(1))
		h.neighbour(gateway, 11)
		h.neighbour(near.AsSlice(), 8)
		h.eventually("the other's new address", func() bool { return h.heard(near, 8) })
		if h.heard(distant(1), 11) {
			t.Error("a destination that was forgotten is notified of")
		}
		far := netip.MustParseAddr("2001:db8::1") // no route
		h.r.Request(far)
		h.eventually("an error", func() bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			return h.last[far].Err != nil
		})
	})
}

// TestFixedStays: the resolver leaves permanent entries of an operator alone. The kernel would turn them into ordinary
// entries on "use".
func TestFixedStays(t *testing.T) {
	onHost(t, func(h *host) {
		for i := range 3 {
			h.r.Request(distant(i))
			h.eventually("an answer", func() bool { return h.heard(distant(i), 9) })
		}
		h.r.telling.Lock() // after the last request is done
		defer h.r.telling.Unlock()
		known, err := h.nl.NeighList(h.link.Attrs().Index, unix.AF_INET)
		if err != nil || len(known) != 1 || known[0].State != netlink.NUD_PERMANENT {
			t.Errorf("%v, %v: want the gateway, permanent", known, err)
		}
	})
}

// TestOverrun: the kernel drops changes while notify is slow, among them the gateway's new address. The destinations
// behind the gateway must get it, and new destinations must be resolved afterwards.
func TestOverrun(t *testing.T) {
	onHost(t, func(h *host) {
		h.r.Request(distant(1))
		h.eventually("an answer", func() bool { return h.heard(distant(1), 9) })
		h.stop.Lock()
		h.neighbour(gateway, 10) // its notification waits for stop
		for round := range 60 {
			for i := range 500 {
				h.neighbour(net.IPv4(10, 1, byte(i>>8), byte(i)), byte(round))
			}
		}
		h.neighbour(gateway, 11)
		h.stop.Unlock()
		h.eventually("the address that was lost", func() bool { return h.heard(distant(1), 11) })
		h.r.Request(distant(2))
		h.eventually("an answer afterwards", func() bool { return h.heard(distant(2), 11) })
		if n := h.r.Watch().Counters(); n.Overruns == 0 || h.r.Watch().Health() != nil {
			t.Errorf("no change was lost: %+v, %v", n, h.r.Watch().Health())
		}
	})
}

// TestPendingOnce requests a few destinations often while the resolver is blocked: each waits only once.
func TestPendingOnce(t *testing.T) {
	onHost(t, func(h *host) {
		h.r.Request(distant(0))
		h.eventually("an answer", func() bool { return h.heard(distant(0), 9) })
		h.stop.Lock()
		for range 10000 {
			for i := 1; i <= 3; i++ {
				h.r.Request(distant(i))
			}
		}
		h.r.mu.Lock()
		waiting := h.r.pending.Len()
		h.r.mu.Unlock()
		h.stop.Unlock()
		if waiting > 3 {
			t.Errorf("%d requests wait for three destinations", waiting)
		}
		h.eventually("answers", func() bool {
			return h.heard(distant(1), 9) && h.heard(distant(3), 9)
		})
		h.r.Forget(distant(1))
		h.r.Forget(distant(1))
		if n := h.r.Len(); n != 3 {
			t.Errorf("%d destinations are followed, want 3", n)
		}
	})
}

// TestGatewayAskedOnce: a destination behind a next hop that was just requested from the kernel is answered without
// another request. The socket for requests is closed, so that a request would fail.
func TestGatewayAskedOnce(t *testing.T) {
	onHost(t, func(h *host) {
		h.r.Request(distant(0))
		h.eventually("an answer", func() bool { return h.heard(distant(0), 9) })
		asked := func(at time.Time) {
			h.r.telling.Lock() // the last request is done
			defer h.r.telling.Unlock()
			h.r.mu.Lock()
			defer h.r.mu.Unlock()
			for _, n := range h.r.hops {
				n.asked = at
			}
		}
		asked(time.Now().Add(time.Hour))
		h.r.one.Close()
		h.r.Request(distant(1))
		h.eventually("an answer without asking", func() bool { return h.heard(distant(1), 9) })
		h.neighbour(gateway, 10)
		h.eventually("the change", func() bool { return h.heard(distant(1), 10) })
		h.r.Request(distant(2))
		h.eventually("the new address", func() bool { return h.heard(distant(2), 10) })
		asked(time.Time{})
		h.r.Request(distant(3))
		h.eventually("a question that fails", func() bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			return h.last[distant(3)].Err != nil
		})
	})
}

// TestManyDestinations requests as many destinations as -addresses says; beyond MaxDestinations, the oldest are
// forgotten. Each thousandth is answered, and so is the first one when it is requested again.
func TestManyDestinations(t *testing.T) {
	n := *addresses
	onHost(t, func(h *host) {
		for i := range n {
			h.r.Request(distant(i))
			if i%1000 == 999 {
				h.eventually("answers", func() bool { return h.heard(distant(i), 9) })
				h.mu.Lock()
				clear(h.last)
				h.mu.Unlock()
			}
		}
		h.r.mu.Lock()
		followed, listed, used := len(h.r.dsts), h.r.recent.Len(), 0
		for _, n := range h.r.hops {
			used += len(n.dsts)
		}
		h.r.mu.Unlock()
		if most := min(n, MaxDestinations); followed > most || listed != followed ||
			used > followed {
			t.Errorf("%d followed, %d listed, %d use a hop; want at most %d", followed, listed,
				used, most)
		}
		h.r.Request(distant(0))
		h.eventually("the first one again", func() bool { return h.heard(distant(0), 9) })
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		t.Logf("%d addresses, %d followed, heap %d KiB, refused %d, %+v", n, followed,
			m.HeapAlloc>>10, h.refused, h.r.Watch().Counters())
	})
}

// TestFlaps repeatedly takes a link with a thousand neighbours down and up, and the kernel reports all their changes at
// once. After every flap a new destination must be resolved.
func TestFlaps(t *testing.T) {
	const neighbours = 1000
	onHost(t, func(h *host) {
		var m runtime.MemStats
		for flap := range *flaps {
			for i := range neighbours {
				h.neighbour(net.IPv4(10, 1, byte(i>>8), byte(i)), byte(flap))
			}
			h.nl.LinkSetDown(h.link)
			h.nl.LinkSetUp(h.link)
			if err := h.route(); err != nil {
				t.Error(err)
				return
			}
			dst := distant(flap)
			h.eventually("an answer", func() bool { h.r.Request(dst); return h.heard(dst, 9) })
			h.r.Forget(dst)
			h.mu.Lock()
			clear(h.last)
			h.mu.Unlock()
			if flap%100 == 99 {
				runtime.GC()
				runtime.ReadMemStats(&m)
				t.Logf("%d flaps: heap %d KiB, %+v", flap+1, m.HeapAlloc>>10,
					h.r.Watch().Counters())
			}
		}
		if n := h.r.Len(); n != 0 || h.r.Watch().Health() != nil {
			t.Errorf("%d destinations are followed, %v", n, h.r.Watch().Health())
		}
	})
}

// TestRoute: after ForgetRoutes, Route returns a route that has changed. At most MaxRoutes routes are cached, and
// errors are not.
func TestRoute(t *testing.T) {
	onHost(t, func(h *host) {
		to := netip.MustParseAddr("192.0.2.1")
		source := func(want string) {
			t.Helper()
			if rt, err := h.r.Route(to); err != nil || rt.Source.String() != want {
				t.Errorf("from %v, %v; want %s", rt.Source, err, want)
			}
		}
		source("10.0.0.1")
		ad, _ := netlink.ParseAddr("10.0.0.7/32")
		dst := &net.IPNet{IP: to.AsSlice(), Mask: net.CIDRMask(32, 32)}
		if err := errors.Join(h.nl.AddrAdd(h.link, ad), h.nl.RouteReplace(&netlink.Route{
			LinkIndex: h.link.Attrs().Index, Gw: gateway, Dst: dst, Src: ad.IP})); err != nil {
			t.Error(err)
			return
		}
		h.r.ForgetRoutes()
		source("10.0.0.7")
		for i := range MaxRoutes {
			a := netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)})
			if _, err := h.r.Route(a); err != nil {
				t.Error(err)
				return
			}
		}
		if n := len(h.r.routes); n > MaxRoutes {
			t.Errorf("%d routes are remembered", n)
		}
		if err := h.nl.LinkSetDown(h.link); err != nil {
			t.Error(err)
		}
		h.r.ForgetRoutes()
		for range 2 { // a failure is not cached as a route
			if _, err := h.r.Route(to); err == nil {
				t.Error("a route over a link that is down")
			}
		}
	})
}
