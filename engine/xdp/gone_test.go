package xdp_test

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"xwarp/bench/topo"
	"xwarp/bpf/needs"
	"xwarp/engine/host/ethtool"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/xdp"
	"xwarp/ring"
)

// isNow waits until the state of a device's interface satisfies want, and otherwise fails the test.
func isNow(t *testing.T, d *xdp.Device, what string, want func(l xdp.Link) bool) {
	t.Helper()
	if !eventually(func() bool { return want(d.Link()) }) {
		t.Errorf("%s: %+v", what, d.Link())
	}
}

func linkOf(t *testing.T, h *topo.Host) netlink.Link {
	t.Helper()
	l, err := h.Netlink().LinkByName(h.Link.Name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestLinkIsFollowed changes properties of the interface one after another during Writes. Connections must survive, and
// the device must report the changes.
func TestLinkIsFollowed(t *testing.T) {
	underWritesOf(t, nil, func(d *xdp.Device, tn *topo.Net) {
		h, l := tn.B.Netlink(), linkOf(t, tn.B)
		must := func(err error) {
			if err != nil {
				t.Error(err)
			}
		}
		must(h.LinkSetDown(l))
		isNow(t, d, "down", func(l xdp.Link) bool {
			return !l.Up && l.Downs == 1 && !l.Since.IsZero()
		})
		must(h.LinkSetUp(l))
		isNow(t, d, "up", func(l xdp.Link) bool { return l.Up && l.Carrier })
		must(tn.A.Netlink().LinkSetDown(linkOf(t, tn.A)))
		isNow(t, d, "no carrier", func(l xdp.Link) bool {
			return l.Up && !l.Carrier && l.Downs == 2
		})
		must(tn.A.Netlink().LinkSetUp(linkOf(t, tn.A)))
		isNow(t, d, "carrier", func(l xdp.Link) bool { return l.Carrier })
		must(h.LinkSetMTU(l, 1200))
		isNow(t, d, "MTU", func(l xdp.Link) bool { return l.MTU == 1200 && l.MTUs == 1 })
		if got := d.Transport().MTU; got != 1200 {
			t.Errorf("packets are of up to %d bytes", got)
		}
		time.Sleep(100 * time.Millisecond) // some Writes
		must(h.LinkSetMTU(l, 1700))
		isNow(t, d, "MTU", func(l xdp.Link) bool { return l.MTU == 1700 && l.MTUs == 2 })
		if got := d.Transport().MTU; got != 1700 {
			t.Errorf("packets are of up to %d bytes", got)
		}
		must(h.LinkSetMTU(l, 9000)) // more than fits a frame of this device
		isNow(t, d, "MTU", func(l xdp.Link) bool { return l.MTU == 9000 && l.MTUs == 3 })
		if got := d.Transport().MTU; got != 4074 {
			t.Errorf("packets are of up to %d bytes", got)
		}
		time.Sleep(100 * time.Millisecond) // some Writes
		must(h.LinkSetMTU(l, 1700))
		isNow(t, d, "MTU", func(l xdp.Link) bool { return l.MTU == 1700 })
		mac := net.HardwareAddr{2, 0, 0, 0, 0xca, 0xfe}
		must(h.LinkSetHardwareAddr(l, mac))
		isNow(t, d, "Ethernet address", func(l xdp.Link) bool { return l.Addresses == 1 })
		addr := &netlink.Addr{IPNet: &net.IPNet{IP: tn.B.Addr4.Addr().AsSlice(),
			Mask: net.CIDRMask(tn.B.Addr4.Bits(), 32)}}
		must(h.AddrDel(l, addr))
		isNow(t, d, "address", func(l xdp.Link) bool {
			return len(l.Missing) == 1 && l.Missing[0] == tn.B.Addr4.Addr() && l.Addresses == 2
		})
		must(h.AddrAdd(l, addr))
		isNow(t, d, "address back", func(l xdp.Link) bool { return len(l.Missing) == 0 })
	})
}

// TestQueuesAdded adds receive queues to the interface. Frames that arrive on an added queue must be handed over to the
// worker of their connection, and new connections must work on any queue.
func TestQueuesAdded(t *testing.T) {
	channels := func(h *topo.Host, n uint32) { // ethtool -L NAME rx N
		t.Helper()
		if err := h.Do(func() error { return ethtool.SetQueues(h.Link.Name, n) }); err != nil {
			t.Fatal(err)
		}
	}
	needs.XSK(t)
	needs.NetNS(t)
	tn, err := topo.New(topo.Options{Queues: 4, OffloadsA: topo.NoOffloads})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tn.Close() })
	channels(tn.B, 1)
	da, db := kernelOn(t, tn.A), openOn(t, tn.B)
	if n := db.Transport().Queues; n != 1 {
		t.Fatalf("%d queues at the start", n)
	}
	a, b := verbstest.New(t, da, 1<<20), verbstest.New(t, db, 1<<20)
	at := netip.AddrPortFrom(tn.B.Addr4.Addr(), 7174)
	verbstest.Connect(t, a, b, at)
	verbstest.Exercise(t, a, b)
	channels(tn.B, 4)
	if !eventually(func() bool { return db.Transport().Queues == 4 }) {
		t.Fatalf("%d queues are served", db.Transport().Queues)
	}
	verbstest.Exercise(t, a, b)
	var over uint64
	for i := 0; i < 64 && (i < 8 || over == 0); i++ { // the queue of a connection is random
		c, d := verbstest.New(t, da, 1<<16), verbstest.New(t, db, 1<<16)
		verbstest.Connect(t, c, d, at)
		verbstest.Exercise(t, c, d)
		s, err := db.Stats()
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range s.Queues {
			over += q.Stack.HandedOver
		}
	}
	verbstest.Exercise(t, a, b)
	if l := db.Link(); over == 0 || l.Queues != 1 {
		t.Errorf("%d frames were handed over, the number of queues changed %d times", over,
			l.Queues)
	}
}

// stuck is a port whose Reap blocks until goOn is closed, if hold is set.
type stuck struct {
	ring.Port
	hold *atomic.Bool
	goOn chan struct{}
}

func (p *stuck) Reap() int {
	if p.hold.Load() {
		<-p.goOn
	}
	return p.Port.Reap()
}

// TestRelayStandsStill: the watchdog also checks the workers of queues added later.
func TestRelayStandsStill(t *testing.T) {
	needs.XSK(t)
	needs.NetNS(t)
	tn, err := topo.New(topo.Options{Queues: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tn.Close() })
	channels := func(n uint32) {
		t.Helper()
		set := func() error { return ethtool.SetQueues(tn.B.Link.Name, n) }
		if err := tn.B.Do(set); err != nil {
			t.Fatal(err)
		}
	}
	channels(1)
	var hold atomic.Bool
	goOn := make(chan struct{})
	cfg := xdp.Config{Interface: tn.B.Link.Name,
		Wrap: func(queue int, p ring.Port) (ring.Port, error) {
			if queue == 0 {
				return p, nil
			}
			return &stuck{p, &hold, goOn}, nil
		}}
	cfg.Stall = 40 * time.Millisecond
	cfg.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	var d *xdp.Device
	if err := tn.B.Do(func() (err error) { d, err = xdp.Open(cfg); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	channels(2)
	if !eventually(func() bool { return d.Transport().Queues == 2 }) {
		t.Fatalf("%d queues are served", d.Transport().Queues)
	}
	hold.Store(true)
	asked := make(chan error, 1)
	go func() { _, err := d.Stats(); asked <- err }() // wakes every worker, and waits
	stalled := eventually(func() bool {
		err := d.Stalled()
		return err != nil && strings.Contains(err.Error(), "worker of queue 1 stalled")
	})
	err = d.Stalled()
	close(goOn)
	if !stalled {
		t.Errorf("stalled: %v", err)
	}
	if err := <-asked; err != nil {
		t.Error(err)
	}
}

func openOn(t *testing.T, h *topo.Host) (d *xdp.Device) {
	t.Helper()
	cfg := xdp.Config{Interface: h.Link.Name}
	cfg.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	if err := h.Do(func() (err error) { d, err = xdp.Open(cfg); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// withRights runs f in the namespace of a host, on a thread whose effective capabilities are only caps.
func withRights(h *topo.Host, f func() error, caps ...int) error {
	return h.Do(func() error {
		head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var all [2]unix.CapUserData
		if err := unix.Capget(&head, &all[0]); err != nil {
			return err
		}
		few := all
		few[0].Effective, few[1].Effective = 0, 0
		for _, c := range caps {
			few[c/32].Effective |= 1 << (c % 32)
		}
		if err := unix.Capset(&head, &few[0]); err != nil {
			return err
		}
		return errors.Join(f(), unix.Capset(&head, &all[0]))
	})
}

// TestInterfaceReopened deletes the interface of a device. When the interface is back, a process with few capabilities
// must be able to open it again, with the program and the sockets that it created before.
func TestInterfaceReopened(t *testing.T) {
	needs.XSK(t)
	needs.NetNS(t)
	tn, err := topo.New(topo.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tn.Close() })
	privileges := xdp.NewPrivileges(2)
	defer privileges.Close()
	cfg := xdp.Config{Interface: tn.B.Link.Name, Privileges: privileges, Transmit: xdp.TransmitAuto}
	cfg.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	var d *xdp.Device
	if err := tn.B.Do(func() (err error) { d, err = xdp.Open(cfg); return err }); err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		peer := openOn(t, tn.A)
		a, b := verbstest.New(t, peer, 1<<20), verbstest.New(t, d, 1<<20)
		verbstest.Connect(t, a, b, netip.AddrPortFrom(tn.B.Addr4.Addr(), 7174))
		verbstest.Exercise(t, a, b)
		peer.Close()
		if err := tn.B.Netlink().LinkDel(linkOf(t, tn.B)); err != nil {
			t.Fatal(err)
		}
		select {
		case <-d.Failed():
		case <-time.After(20 * time.Second):
			t.Fatal("the device does not notice")
		}
		if l := d.Link(); !l.Gone || !errors.Is(d.Err(), xdp.ErrGone) {
			t.Errorf("%+v, %v", l, d.Err())
		}
		d.Close()
		if round == 2 {
			return
		}
		if err := tn.Reconnect(); err != nil {
			t.Fatal(err)
		}
		if err := withRights(tn.B, func() (err error) { d, err = xdp.Open(cfg); return err },
			unix.CAP_NET_ADMIN, unix.CAP_IPC_LOCK); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
}
