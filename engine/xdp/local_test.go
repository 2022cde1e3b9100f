package xdp_test

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"xwarp/bench/topo"
	"xwarp/bpf"
	"xwarp/engine/verbs"
	"xwarp/engine/xdp"
	"xwarp/ring"
)

// reaches reports whether the kernel of B can connect to an address.
func reaches(tn *topo.Net, at netip.AddrPort) bool {
	return tn.B.Do(func() error {
		c, err := net.DialTimeout("tcp", at.String(), 200*time.Millisecond)
		if err == nil {
			c.Close()
		}
		return err
	}) == nil
}

func steering(t *testing.T, d *xdp.Device) bpf.Counts {
	t.Helper()
	s, err := d.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return s.Steering
}

// TestListenerOfAnyAddress: host A gets packets to 203.0.113.0/24, as a router does. A listener for any address serves
// A's own addresses on all interfaces, including addresses added later, until they are removed. It must not respond at
// other addresses: the kernel gets their segments.
func TestListenerOfAnyAddress(t *testing.T) {
	da, _, tn := xdpPair(t, topo.Options{OffloadsB: topo.NoOffloads}, nil)
	l, err := da.Listen(netip.MustParseAddrPort("0.0.0.0:7174"), verbs.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	foreign := netip.MustParseAddrPort("203.0.113.77:7174")
	route := &netlink.Route{LinkIndex: tn.B.Link.Index, Gw: tn.A.Addr4.Addr().AsSlice(),
		Dst: &net.IPNet{IP: net.IPv4(203, 0, 113, 0), Mask: net.CIDRMask(24, 32)}}
	if err := tn.B.Netlink().RouteAdd(route); err != nil {
		t.Fatal(err)
	}
	if !reaches(tn, netip.AddrPortFrom(tn.A.Addr4.Addr(), 7174)) {
		t.Fatal("no answer at A's own address")
	}
	if reaches(tn, foreign) {
		t.Error("A answers for an address that it routes for")
	}
	if n := steering(t, da)[bpf.PassNotLocal]; n == 0 {
		t.Error("the segment to the foreign address is not counted")
	}
	lo, err := tn.A.Netlink().LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	ours := &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(203, 0, 113, 77),
		Mask: net.CIDRMask(32, 32)}}
	if err := tn.A.Netlink().AddrAdd(lo, ours); err != nil {
		t.Fatal(err)
	}
	if !eventually(func() bool { return reaches(tn, foreign) }) {
		t.Error("no answer at an address that A got later")
	}
	if err := tn.A.Netlink().AddrDel(lo, ours); err != nil {
		t.Fatal(err)
	}
	if !eventually(func() bool { return !reaches(tn, foreign) }) {
		t.Error("A answers at an address that it gave up")
	}
}

// TestAllow: listeners serve only the peers in the device's current list of allowed prefixes. Segments of other peers
// are dropped and counted.
func TestAllow(t *testing.T) {
	da, _, tn := xdpPair(t, topo.Options{OffloadsB: topo.NoOffloads}, func(c *xdp.Config) {
		c.Allow = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
	})
	at := netip.AddrPortFrom(tn.A.Addr4.Addr(), 7174)
	l, err := da.Listen(at, verbs.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if reaches(tn, at) {
		t.Error("the listener serves a peer that is not on the list")
	}
	if n := steering(t, da)[bpf.DropPeer]; n == 0 {
		t.Error("the segment of a peer that is not on the list is not counted")
	}
	if err := da.SetAllow([]netip.Prefix{netip.PrefixFrom(tn.B.Addr4.Addr(), 32)}); err != nil {
		t.Fatal(err)
	}
	if !reaches(tn, at) {
		t.Error("the listener does not serve a peer on the list")
	}
}

// TestQueueLosesSocket: a queue briefly has no socket during a transfer. The kernel must not respond to segments of
// connections that it does not know. TCP retransmits the dropped segments.
func TestQueueLosesSocket(t *testing.T) {
	var db *xdp.Device
	var fd int
	underWritesOf(t, func(c *xdp.Config) {
		c.Wrap = func(_ int, p ring.Port) (ring.Port, error) {
			fd = xdp.PortOf(p).(*ring.Socket).Fd() // of the device opened last
			return p, nil
		}
	}, func(to *xdp.Device, _ *topo.Net) {
		db = to
		s := xdp.SteeringOf(db)
		dropped := func() uint64 {
			n, err := s.Counters()
			if err != nil {
				t.Error(err)
			}
			return n[bpf.DropNoSocket]
		}
		for range 3 {
			time.Sleep(20 * time.Millisecond)
			n := dropped()
			err := s.RemoveSocket(0)
			for end := time.Now().Add(20 * time.Second); dropped() == n && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			if err = errors.Join(err, s.SetSocket(0, fd)); err != nil {
				t.Error(err)
			}
		}
	})
	if n := steering(t, db)[bpf.DropNoSocket]; n == 0 {
		t.Error("nothing was dropped: the test proves nothing")
	}
}

// TestOwnAddressMoves changes the Ethernet address of our interface during a transfer, which must continue.
func TestOwnAddressMoves(t *testing.T) {
	underWrites(t, func(tn *topo.Net) {
		time.Sleep(20 * time.Millisecond)
		moved := net.HardwareAddr{0x02, 0, 0, 0, 0xbe, 0xef}
		link, err := tn.A.Netlink().LinkByName(tn.A.Link.Name)
		if err == nil {
			err = tn.A.Netlink().LinkSetHardwareAddr(link, moved)
		}
		if err == nil {
			err = tn.B.Netlink().NeighSet(&netlink.Neigh{
				LinkIndex: tn.B.Link.Index, IP: tn.A.Addr4.Addr().AsSlice(), HardwareAddr: moved,
				State: netlink.NUD_PERMANENT,
			})
		}
		if err != nil {
			t.Error(err)
		}
		time.Sleep(20 * time.Millisecond)
	})
}

// TestServesAllQueues: by default, all receive queues are served.
func TestServesAllQueues(t *testing.T) {
	da, _, _ := xdpPair(t, topo.Options{Queues: 2}, nil)
	s, err := da.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if n := da.Transport().Queues; n != 2 || len(s.Queues) != 2 || s.Queues[0].Queue != 0 ||
		s.Queues[1].Queue != 1 {
		t.Errorf("%d queues, %+v", n, s.Queues)
	}
}

// TestTransportMode: Device.Transport reports that the sockets copy frames, and why.
func TestTransportMode(t *testing.T) {
	da, _, _ := xdpPair(t, topo.Options{}, nil)
	if got := da.Transport(); got.Copy != "copy" || got.NoZeroCopy == "" || got.Segments < 2 ||
		got.Fallback != "" {
		t.Errorf("on a veth, which copies: %+v", got)
	}
}
