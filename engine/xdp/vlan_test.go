package xdp_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"xwarp/bench/topo"
	"xwarp/bpf"
	"xwarp/bpf/needs"
	"xwarp/engine/host/ethtool"
	"xwarp/engine/internal/core"
	"xwarp/engine/stack"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/verbs"
	"xwarp/engine/xdp"
	"xwarp/ring"
)

// vlanNet is a pair of hosts with VLANs. The kernel under test may lack VLAN devices. So a macvlan of eth0 called
// eth0.100 has the addresses, routes and neighbours of VLAN 100, and SetTrunkOf makes the engine treat it as the VLAN.
type vlanNet struct {
	*topo.Net
	t *testing.T
	k map[*topo.Host]*xdp.Privileges // for all devices of a host
}

func newVLANNet(t *testing.T, o topo.Options, ids ...int) *vlanNet {
	t.Helper()
	needs.XSK(t)
	needs.NetNS(t)
	tn, err := topo.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tn.Close() })
	t.Cleanup(xdp.SetTrunkOf(func(nic netlink.Link) (netlink.Link, uint16, error) {
		var id uint16
		if n, _ := fmt.Sscanf(nic.Attrs().Name, "eth0.%d", &id); n == 0 {
			return nic, 0, nil
		}
		parent, err := netlink.LinkByIndex(nic.Attrs().ParentIndex)
		return parent, id, err
	}))
	v := &vlanNet{tn, t, map[*topo.Host]*xdp.Privileges{tn.A: xdp.NewPrivileges(1),
		tn.B: xdp.NewPrivileges(1)}}
	for _, k := range v.k {
		t.Cleanup(func() { k.Close() })
	}
	for h, other := range map[*topo.Host]*topo.Host{tn.A: tn.B, tn.B: tn.A} {
		for _, at := range []netip.Prefix{other.Addr4, other.Addr6} { // macvlans also answer ARP
			if err := h.Netlink().NeighSet(&netlink.Neigh{LinkIndex: h.Link.Index,
				State: netlink.NUD_PERMANENT, IP: at.Addr().AsSlice(),
				HardwareAddr: other.Link.MAC}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, id := range ids {
		v.add(id)
	}
	return v
}

// addr returns the address of a host in a VLAN.
func (v *vlanNet) addr(h *topo.Host, id int, v6 bool) netip.Addr {
	last := byte(1)
	if h == v.B {
		last = 2
	}
	if v6 {
		return netip.AddrFrom16([16]byte{0xfd, 0x64, byte(id >> 8), byte(id), 15: last})
	}
	return netip.AddrFrom4([4]byte{10, byte(100 + id>>8), byte(id), last})
}

// add adds a VLAN to both hosts.
func (v *vlanNet) add(id int) {
	v.t.Helper()
	macs := map[*topo.Host]net.HardwareAddr{v.A: {2, 1, byte(id >> 8), byte(id), 0, 1},
		v.B: {2, 1, byte(id >> 8), byte(id), 0, 2}}
	for h, other := range map[*topo.Host]*topo.Host{v.A: v.B, v.B: v.A} {
		n := h.Netlink()
		nic := &netlink.Macvlan{Mode: netlink.MACVLAN_MODE_PRIVATE, LinkAttrs: netlink.LinkAttrs{
			Name: fmt.Sprintf("eth0.%d", id), ParentIndex: h.Link.Index, HardwareAddr: macs[h]}}
		err := errors.Join(n.LinkAdd(nic), n.LinkSetUp(nic))
		for _, v6 := range []bool{false, true} {
			bits := 24
			flags := 0
			if v6 {
				bits, flags = 64, unix.IFA_F_NODAD
			}
			at := v.addr(h, id, v6)
			err = errors.Join(err, n.AddrAdd(nic, &netlink.Addr{Flags: flags,
				IPNet: &net.IPNet{IP: at.AsSlice(), Mask: net.CIDRMask(bits, at.BitLen())}}),
				n.NeighSet(&netlink.Neigh{LinkIndex: nic.Index, State: netlink.NUD_PERMANENT,
					IP: v.addr(other, id, v6).AsSlice(), HardwareAddr: macs[other]}))
		}
		if err != nil {
			v.t.Fatal(err)
		}
	}
}

func (v *vlanNet) tryOpen(h *topo.Host, name string,
	edit func(*xdp.Config)) (d *xdp.Device, err error) {
	cfg := xdp.Config{Interface: name, Privileges: v.k[h]}
	cfg.Log = slog.New(slog.NewTextHandler(v.t.Output(), nil)).With("at", name)
	if edit != nil {
		edit(&cfg)
	}
	err = h.Do(func() (err error) {
		d, err = xdp.Open(cfg)
		return err
	})
	return d, err
}

func (v *vlanNet) open(h *topo.Host, name string, edit func(*xdp.Config)) *xdp.Device {
	v.t.Helper()
	d, err := v.tryOpen(h, name, edit)
	if err != nil {
		v.t.Fatal(err)
	}
	v.t.Cleanup(func() { d.Close() })
	return d
}

// sameVLAN is a port that fails the test if it receives a frame of another VLAN than id. It counts received frames.
type sameVLAN struct {
	ring.Port
	t      *testing.T
	id     uint16
	frames *atomic.Int64
}

func (p *sameVLAN) Recv(batch []ring.Packet) int {
	n := p.Port.Recv(batch)
	for i := range n {
		p.frames.Add(1)
		if id, ok := stack.VLANOf(batch[i].Frag(0)); !ok || id != p.id {
			p.t.Errorf("a frame of VLAN %d reached the device of VLAN %d", id, p.id)
		}
	}
	return n
}

// TestVLANs: devices on an interface and on its VLANs share the program, and each receives only its own frames, in both
// IP versions. A device can be closed while others are open. Closing the last one detaches the program, and lets the
// interface strip tags again.
func TestVLANs(t *testing.T) {
	for _, queues := range []int{1, 2} {
		for _, way := range []xdp.Transmit{xdp.TransmitXDP, xdp.TransmitGSO} {
			t.Run(fmt.Sprintf("%d queues/%s", queues, way), func(t *testing.T) {
				testVLANs(t, queues, way)
			})
		}
	}
}

func testVLANs(t *testing.T, queues int, way xdp.Transmit) {
	v := newVLANNet(t, topo.Options{Queues: queues}, 100, 4094)
	strips := func(h *topo.Host) (on bool) {
		h.Do(func() error {
			f, err := ethtool.Features("eth0")
			on = f[ethtool.VLANStripping].On
			return err
		})
		return on
	}
	if !strips(v.A) {
		t.Fatal("the interface does not strip tags to begin with")
	}
	type side struct{ a, b *xdp.Device }
	var sides []side
	var frames [3]atomic.Int64
	for i, id := range []int{100, 0, 4094} { // a VLAN opens the sockets, its parent joins
		name := "eth0"
		if id != 0 {
			name = fmt.Sprintf("eth0.%d", id)
		}
		edit := func(c *xdp.Config) {
			c.Transmit = way
			c.Wrap = func(_ int, p ring.Port) (ring.Port, error) {
				return &sameVLAN{p, t, uint16(id), &frames[i]}, nil
			}
		}
		sides = append(sides, side{v.open(v.A, name, edit), v.open(v.B, name, edit)})
	}
	if strips(v.A) {
		t.Error("the interface strips tags while it serves VLANs")
	}
	for _, s := range sides[1:] {
		if xdp.SteeringOf(s.b) != xdp.SteeringOf(sides[0].b) {
			t.Error("a device has a program of its own")
		}
	}
	use := func(i int) {
		id := []int{100, 0, 4094}[i]
		for n, v6 := range []bool{false, true} {
			at := v.addr(v.B, id, v6)
			if id == 0 && !v6 {
				at = v.B.Addr4.Addr()
			} else if id == 0 {
				at = v.B.Addr6.Addr()
			}
			a, b := verbstest.New(t, sides[i].a, 1<<20), verbstest.New(t, sides[i].b, 1<<20)
			verbstest.Connect(t, a, b, netip.AddrPortFrom(at, uint16(7174+n)))
			verbstest.Exercise(t, a, b)
			a.QP.Close()
			b.QP.Close()
		}
	}
	var all sync.WaitGroup
	for i := range sides {
		all.Go(func() { use(i) })
	}
	all.Wait()
	for i := range frames {
		if frames[i].Load() == 0 {
			t.Errorf("device %d received nothing", i)
		}
	}
	for i := range 2 { // the others go on
		if err := errors.Join(sides[i].a.Close(), sides[i].b.Close()); err != nil {
			t.Error(err)
		}
		if !attached(t, v.B) {
			t.Fatal("the program is detached while a device is open")
		}
		use(2)
	}
	again := v.open(v.B, "eth0.100", func(c *xdp.Config) { c.Transmit = way })
	if err := errors.Join(sides[2].a.Close(), sides[2].b.Close(), again.Close()); err != nil {
		t.Error(err)
	}
	if attached(t, v.B) || !strips(v.A) || !strips(v.B) {
		t.Errorf("after the last device: attached %t, strips tags %t and %t", attached(t, v.B),
			strips(v.A), strips(v.B))
	}
}

// TestVLANRefused: Open fails if a setting of the shared sockets differs, or if another device has the interface open.
// Open devices are not affected.
func TestVLANRefused(t *testing.T) {
	v := newVLANNet(t, topo.Options{}, 100)
	d := v.open(v.A, "eth0", nil)
	peer := v.open(v.B, "eth0", nil)
	for _, c := range []struct {
		name, says string
		edit       func(*xdp.Config)
		is         error
	}{
		{"eth0.100", "eth0.100 shares the sockets of eth0, but rx_frames is 4096 here and 0 " +
			"there: make the settings equal",
			func(c *xdp.Config) { c.RxFrames = 4096 }, verbs.ErrInvalid},
		{"eth0.100", "queues is [0] here and [] there",
			func(c *xdp.Config) { c.Queues = []int{0} }, verbs.ErrInvalid},
		{"eth0", "another device has this interface open", nil, unix.EBUSY},
	} {
		if _, err := v.tryOpen(v.A, c.name, c.edit); !errors.Is(err, c.is) ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
	}
	a, b := verbstest.New(t, d, 1<<20), verbstest.New(t, peer, 1<<20)
	verbstest.Connect(t, a, b, netip.AddrPortFrom(v.B.Addr4.Addr(), 7174))
	verbstest.Exercise(t, a, b)
	v.open(v.A, "eth0.100", nil)
}

// TestVLANGone: the removal of a VLAN ends only the device of that VLAN. After the last device has ended, the program
// is detached, and the parent interface can be opened.
func TestVLANGone(t *testing.T) {
	v := newVLANNet(t, topo.Options{}, 100, 101)
	remove := func(name string) {
		t.Helper()
		nic, err := v.A.Netlink().LinkByName(name)
		if err == nil {
			err = v.A.Netlink().LinkDel(nic)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	fails := func(d *xdp.Device) {
		t.Helper()
		select {
		case <-d.Failed():
			if !errors.Is(d.Err(), xdp.ErrGone) {
				t.Errorf("the device failed with %v", d.Err())
			}
		case <-time.After(20 * time.Second):
			t.Fatal("the device did not fail")
		}
		if err := d.Detach(); err != nil { // as a daemon does
			t.Error(err)
		}
		d.Close()
	}
	gone, stays := v.open(v.A, "eth0.100", nil), v.open(v.A, "eth0.101", nil)
	peer, other := v.open(v.B, "eth0.101", nil), v.open(v.B, "eth0.100", nil)
	a, b := verbstest.New(t, stays, 1<<20), verbstest.New(t, peer, 1<<20)
	verbstest.Connect(t, a, b, netip.AddrPortFrom(v.addr(v.B, 101, false), 7174))
	ended := verbstest.New(t, gone, 1<<20)
	verbstest.Connect(t, ended, verbstest.New(t, other, 1<<20),
		netip.AddrPortFrom(v.addr(v.B, 100, false), 7174))
	remove("eth0.100")
	fails(gone)
	select {
	case <-ended.QP.(*core.QP).Gone():
	case <-time.After(20 * time.Second):
		t.Fatal("a connection of the removed VLAN did not end")
	}
	verbstest.Exercise(t, a, b)
	if c, err := xdp.SteeringOf(peer).Counters(); err != nil || c[bpf.Flow] == 0 {
		t.Errorf("%v, %v", c, err)
	}
	remove("eth0.101")
	fails(stays)
	if attached(t, v.A) {
		t.Error("the program is attached without a device")
	}
	v.open(v.A, "eth0", nil)
}
