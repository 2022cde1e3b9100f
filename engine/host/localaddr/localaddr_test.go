package localaddr

import (
	"errors"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"xwarp/bpf/needs"
)

// host is a network namespace with a veth, and the reports of a Follower there.
type host struct {
	*testing.T
	nl   *netlink.Handle
	link netlink.Link

	mu   sync.Mutex
	told []State

	lost chan error // receives the error that Follow passes to gone
}

func (h *host) gone(err error) { h.lost <- err }

// onHost runs f in its own namespace.
func onHost(t *testing.T, f func(h *host)) {
	t.Helper()
	needs.NetNS(t)
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		done <- func() (err error) {
			if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return err
			}
			h := &host{T: t, lost: make(chan error, 1)}
			if h.nl, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
				return err
			}
			defer h.nl.Close()
			a := netlink.NewLinkAttrs()
			a.Name = "v0"
			v := netlink.NewVeth(a)
			v.PeerName = "v1"
			err = h.nl.LinkAdd(v)
			for _, name := range []string{"lo", "v1", "v0"} {
				l, e := h.nl.LinkByName(name)
				if err = errors.Join(err, e); err == nil {
					err = h.nl.LinkSetUp(l)
				}
				h.link = l
			}
			if err == nil {
				f(h)
			}
			return err
		}()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func (h *host) notify(s *State) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told = append(h.told, *s)
	return nil
}

func (h *host) last() State {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.told[len(h.told)-1]
}

// expect waits until the reported addresses are want. It ignores link-local ones.
func (h *host) expect(what string, want ...string) {
	h.Helper()
	var got []string
	for range 500 {
		got = nil
		for _, p := range h.last().Addrs {
			if !p.Addr().IsLinkLocalUnicast() { // the kernel creates them at any time
				got = append(got, p.String())
			}
		}
		slices.Sort(got)
		if got = slices.Compact(got); slices.Equal(got, want) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	h.Errorf("%s: %q, want %q", what, got, want)
}

func (h *host) try(err error) {
	h.Helper()
	if err != nil {
		h.Error(err)
	}
}

func (h *host) address(name, prefix string) (netlink.Link, *netlink.Addr) {
	l, err := h.nl.LinkByName(name)
	h.try(err)
	p := netip.MustParsePrefix(prefix)
	return l, &netlink.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(),
		p.Addr().BitLen())}, Flags: unix.IFA_F_NODAD}
}

func (h *host) add(name, prefix string) { h.try(h.nl.AddrAdd(h.address(name, prefix))) }
func (h *host) del(name, prefix string) { h.try(h.nl.AddrDel(h.address(name, prefix))) }

// TestFollow: the host's addresses are those of all its interfaces, without loopback and broadcast, and the prefixes
// that are routed to itself. The Ethernet address is that of the followed interface, also after a change. Routes in
// other tables are ignored: a transparent proxy routes the whole internet to its host there.
func TestFollow(t *testing.T) {
	onHost(t, func(h *host) {
		h.add("v0", "192.0.2.1/24")
		f, err := Follow(h.link.Attrs().Index, nil, h.notify, h.gone)
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		h.expect("at first", "192.0.2.1/32")
		if got, want := h.last().Networks, netip.MustParsePrefix("192.0.2.1/24"); !slices.Contains(
			got, want) {
			t.Errorf("networks %v, want %v", got, want)
		}
		if mac := h.last().MAC; mac != [6]byte(h.link.Attrs().HardwareAddr) {
			t.Errorf("Ethernet address % x, want %v", mac, h.link.Attrs().HardwareAddr)
		}
		h.add("v1", "198.51.100.7/32")
		h.add("lo", "203.0.113.9/32")
		h.add("v0", "2001:db8::1/64")
		h.expect("of several interfaces", "192.0.2.1/32", "198.51.100.7/32", "2001:db8::1/128",
			"203.0.113.9/32")
		h.add("lo", "198.51.100.7/32")
		h.del("v1", "198.51.100.7/32")
		h.del("lo", "203.0.113.9/32")
		h.del("v0", "2001:db8::1/64")
		h.expect("one moved, two went", "192.0.2.1/32", "198.51.100.7/32")

		lo, err := h.nl.LinkByName("lo")
		h.try(err)
		whole := &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
		some := &net.IPNet{IP: net.IPv4(203, 0, 113, 0), Mask: net.CIDRMask(24, 32)}
		h.try(h.nl.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: whole,
			Type: unix.RTN_LOCAL, Scope: unix.RT_SCOPE_HOST, Table: 100}))
		h.try(h.nl.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: some,
			Type: unix.RTN_LOCAL, Scope: unix.RT_SCOPE_HOST, Table: unix.RT_TABLE_LOCAL}))
		h.expect("a prefix of our own", "192.0.2.1/32", "198.51.100.7/32", "203.0.113.0/24")

		moved := net.HardwareAddr{2, 0, 0, 0, 0xbe, 0xef}
		h.try(h.nl.LinkSetHardwareAddr(h.link, moved))
		for i := 0; h.last().MAC != [6]byte(moved); i++ {
			if time.Sleep(10 * time.Millisecond); i == 500 {
				t.Errorf("Ethernet address % x, want %v", h.last().MAC, moved)
				break
			}
		}
	})
}

// TestManyChanges: a thousand new addresses cost at most half as many reads of the tables, and no address is missing.
func TestManyChanges(t *testing.T) {
	onHost(t, func(h *host) {
		f, err := Follow(h.link.Attrs().Index, nil, h.notify, h.gone)
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		const n = 1000
		for i := range n {
			h.add("lo", netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}),
				32).String())
		}
		for i := 0; len(h.last().Addrs) < n; i++ {
			if time.Sleep(10 * time.Millisecond); i == 1000 {
				t.Errorf("%d addresses are known of %d", len(h.last().Addrs), n)
				break
			}
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if len(h.told) > n/2 {
			t.Errorf("%d reads for %d changes", len(h.told), n)
		}
	})
}

// TestRefused: if the callback refuses the first state, Follow returns the error. A later state that is refused is
// offered again.
func TestRefused(t *testing.T) {
	onHost(t, func(h *host) {
		refuse := errors.New("no room")
		if _, err := Follow(h.link.Attrs().Index, nil, func(*State) error {
			return refuse
		}, h.gone); !errors.Is(err, refuse) {
			t.Errorf("at first: %v", err)
		}
		calls := 0
		f, err := Follow(h.link.Attrs().Index, nil, func(s *State) error {
			if calls++; calls == 2 {
				return refuse
			}
			return h.notify(s)
		}, h.gone)
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		h.add("lo", "192.0.2.1/32")
		h.expect("offered again", "192.0.2.1/32")
		if _, err := Follow(4242, nil, h.notify, h.gone); err == nil {
			t.Error("a missing interface is followed")
		}
	})
}

// TestGone: the removal of an interface is noticed, even if it has no addresses or routes that would go with it.
func TestGone(t *testing.T) {
	onHost(t, func(h *host) {
		f, err := Follow(h.link.Attrs().Index, nil, h.notify, h.gone)
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		h.expect("at first")
		if err := h.nl.LinkDel(h.link); err != nil {
			t.Error(err)
			return
		}
		select {
		case err := <-h.lost:
			if _, ok := errors.AsType[netlink.LinkNotFoundError](err); !ok {
				t.Errorf("gone with %v", err)
			}
		case <-time.After(20 * time.Second):
			t.Error("the removal of the interface was not noticed")
		}
	})
}
