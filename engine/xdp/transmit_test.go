package xdp_test

import (
	"errors"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"

	"xwarp/bench/topo"
	"xwarp/bpf"
	"xwarp/bpf/needs"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/verbs"
	"xwarp/engine/xdp"
	"xwarp/ring"
	"xwarp/ring/gso"
	"xwarp/ring/monitor"
)

// transmitCase describes a link and the devices at its two ends.
type transmitCase struct {
	name        string
	mtu         int
	queues      int
	markers, v6 bool
	offloads    topo.Offloads
	mode        bpf.Mode
	idle        xdp.Idle
	lossy       bool                        // every fifth block is lost
	link        func(*testing.T, *topo.Net) // gives hosts other links; nil: veths
}

// lossyBlocks is a Port that loses every fifth block.
type lossyBlocks struct {
	ring.Port
	n int
}

func (p *lossyBlocks) SendBlock(b []byte, s ring.Shape) {
	if p.n++; p.n%5 != 0 {
		p.Port.SendBlock(b, s)
	}
}

// transmits transfers data by every verb over two devices with the same Config.Transmit, and closes them. Every segment
// that arrives must start with an FPDU and hold whole FPDUs. It returns the ports that Config.Wrap got.
func (tc *transmitCase) transmits(t *testing.T, way xdp.Transmit) (ports []ring.Port) {
	t.Helper()
	var mu sync.Mutex
	hub := monitor.NewHub(nil)
	net := xdpNet(t, topo.Options{MTU: tc.mtu, Queues: tc.queues, OffloadsA: tc.offloads,
		OffloadsB: tc.offloads})
	if tc.link != nil {
		tc.link(t, net)
	}
	da, db := openPair(t, net, func(c *xdp.Config) {
		c.Transmit, c.MPA, c.XDPMode = way, verbs.MPAWith(tc.markers, true), tc.mode
		c.Idle = tc.idle
		c.Wrap = func(_ int, p ring.Port) (ring.Port, error) {
			mu.Lock()
			defer mu.Unlock()
			ports = append(ports, p)
			if tc.lossy {
				p = &lossyBlocks{Port: p}
			}
			return hub.Wrap(p, ""), nil // as in a daemon
		}
	})
	a, b := verbstest.New(t, da, 4<<20), verbstest.New(t, db, 4<<20)
	at := net.B.Addr4.Addr()
	if tc.v6 {
		at = net.B.Addr6.Addr()
	}
	verbstest.Connect(t, a, b, netip.AddrPortFrom(at, 7174))
	verbstest.Exercise(t, a, b)
	for _, e := range []*verbstest.End{a, b} {
		i, err := e.QP.Info()
		if err != nil {
			t.Fatal(err)
		}
		if m := &i.MPA; m.Aligned == 0 || m.Partial+m.Unaligned+m.CRCDrops > 0 {
			t.Errorf("not every segment held whole FPDUs: %+v", *m)
		}
	}
	for _, d := range []*xdp.Device{da, db} {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	return ports
}

// TestTransmitGSO: both ends send blocks. A veth delivers them whole. So do a macvlan and a bridge on one, and a tap
// whose user takes them. If the sender's TSO is off, or the receiver's program is native, the kernel cuts them into
// segments; this is checked without losses.
func TestTransmitGSO(t *testing.T) {
	for _, tc := range []transmitCase{{name: "1500"}, {name: "9000", mtu: 9000},
		{name: "ipv6", v6: true}, {name: "markers", markers: true},
		{name: "markers-9000", mtu: 9000, markers: true},
		{name: "markers-ipv6", markers: true, v6: true}, {name: "queues", queues: 4},
		{name: "spin", idle: xdp.IdleSpin}, {name: "sleep", idle: xdp.IdleSleep},
		{name: "lossy", lossy: true}, {name: "lossy-markers", markers: true, lossy: true},
		{name: "macvlan", link: macvlanOnA}, {name: "bridge", link: bridgeOnA},
		{name: "tap", link: taps, mode: bpf.ModeGeneric},
		{name: "cut", offloads: topo.NoOffloads},
		{name: "cut-markers-9000", mtu: 9000, markers: true, offloads: topo.NoOffloads},
		{name: "cut-sums", offloads: topo.Offloads{TSO: topo.Off}},
		{name: "cut-native", mode: bpf.ModeNative}} {
		t.Run(tc.name, func(t *testing.T) {
			cut := tc.mode == bpf.ModeNative || tc.offloads != topo.Offloads{}
			blocks := uint64(0)
			way := xdp.TransmitAuto
			if tc.mode != bpf.ModeAuto { // auto means frames on a tap
				way = xdp.TransmitGSO
			}
			var received [2]ring.Stats // sum over all queues of a device, because the kernel chooses one for each frame
			var sent [2]gso.Stats
			for i, p := range tc.transmits(t, way) {
				n := p.Stats()
				of := &received[i/max(tc.queues, 1)]
				of.RxPackets, of.RxBytes = of.RxPackets+n.RxPackets, of.RxBytes+n.RxBytes
				s := xdp.PortOf(p).(*gso.Port).GSOStats()
				to := &sent[i/max(tc.queues, 1)]
				to.Blocks, to.Segments = to.Blocks+s.Blocks, to.Segments+s.Segments
				to.Single += s.Single
				if tc.queues > 1 && s.Blocks == 0 {
					continue // no connection is on this queue
				}
				blocks += s.Blocks
				t.Logf("end %d: %+v", i, s)
				if s.Blocks == 0 || s.Dropped > 0 || s.Segments < 2*s.Blocks {
					t.Errorf("end %d: %+v", i, s)
				}
			}
			for i := range 2 {
				n := &received[i]
				if tc.lossy {
					continue
				}
				from := &sent[1-i]
				if whole := 2*n.RxPackets < from.Blocks+from.Segments+2*from.Single; whole == cut {
					t.Errorf("device %d: %d packets of %+v", i, n.RxPackets, *from)
				}
				if tc.mtu > 0 || tc.idle == xdp.IdleSpin { // which shares the processor, and sends many short runs
					continue
				}
				if whole := n.RxPackets < n.RxBytes/4000; whole == cut {
					t.Errorf("device %d: %d bytes in %d packets", i, n.RxBytes, n.RxPackets)
				}
			}
			if blocks == 0 {
				t.Error("no blocks")
			}
		})
	}
}

// TestTransmitRefused: Open fails if Config.Transmit is unknown, and the error names a known value, packet-gso.
func TestTransmitRefused(t *testing.T) {
	needs.XSK(t)
	needs.NetNS(t)
	net, err := topo.New(topo.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer net.Close()
	err = net.A.Do(func() error {
		d, err := xdp.Open(xdp.Config{Interface: net.A.Link.Name, Transmit: "carrier pigeon"})
		if err == nil {
			d.Close()
		}
		return err
	})
	if err == nil || !strings.Contains(err.Error(), `"packet-gso"`) {
		t.Error(err)
	}
}

// TestTransmitAuto: with TransmitAuto a device on a veth sends blocks, and Transport says why. Its program is generic
// unless Config.XDPMode asks for a native one.
func TestTransmitAuto(t *testing.T) {
	for _, c := range []struct {
		mode   bpf.Mode
		queues int
		want   string
	}{{bpf.ModeAuto, 1, "generic"}, {bpf.ModeAuto, 2, "generic"}, {bpf.ModeGeneric, 2, "generic"},
		{bpf.ModeNative, 1, "native"}} {
		d, _, _ := xdpPair(t, topo.Options{Queues: c.queues}, func(x *xdp.Config) {
			x.Transmit, x.XDPMode = xdp.TransmitAuto, c.mode
		})
		const way = "packet-gso in packets of 1500 bytes: blocks measured fastest"
		if i := d.Transport(); i.XDPMode != c.want || i.Transmit != "packet-gso" ||
			!strings.HasPrefix(i.Way, way) {
			t.Errorf("%+v: %s, %s, %q", c, i.XDPMode, i.Transmit, i.Way)
		}
	}
}

// TestTransmitAutoByKind: TransmitAuto means blocks on a veth in every mode, and on other interfaces only if they have
// no native mode. A tap has one, so that generic mode, if it is configured, means frames.
func TestTransmitAutoByKind(t *testing.T) {
	needs.XSK(t)
	needs.NetNS(t)
	net, err := topo.New(topo.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer net.Close()
	const blocks, frames, fails = xdp.TransmitGSO, xdp.TransmitXDP, xdp.Transmit("")
	for _, c := range []struct {
		nic    netlink.Link // to be created; nil: the veth
		autoOn xdp.Transmit
		modes  [3]xdp.Transmit // by bpf.Mode
	}{
		{nil, blocks, [3]xdp.Transmit{blocks, blocks, blocks}},
		{&netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: "tap0"}, Mode: netlink.TUNTAP_MODE_TAP},
			frames, [3]xdp.Transmit{frames, frames, frames}},
		{&netlink.Macvlan{LinkAttrs: netlink.LinkAttrs{Name: "macvlan0",
			ParentIndex: net.A.Link.Index}, Mode: netlink.MACVLAN_MODE_PRIVATE},
			blocks, [3]xdp.Transmit{blocks, fails, blocks}},
	} {
		name := net.A.Link.Name
		if c.nic != nil {
			name = c.nic.Attrs().Name
		}
		t.Run(name, func(t *testing.T) {
			if err := net.A.Do(func() error {
				if c.nic != nil {
					err := errors.Join(netlink.LinkAdd(c.nic), netlink.LinkSetUp(c.nic))
					if err != nil {
						return err
					}
				}
				nic, err := netlink.LinkByName(name)
				if err != nil {
					return err
				}
				if way := xdp.AutoOn(nic); way != c.autoOn {
					t.Errorf("AutoOn: %s, want %s", way, c.autoOn)
				}
				for mode, want := range c.modes {
					d, err := xdp.Open(xdp.Config{Interface: name, Transmit: xdp.TransmitAuto,
						XDPMode: bpf.Mode(mode)})
					if (err != nil) != (want == fails) {
						t.Errorf("%s: %v", bpf.Mode(mode), err)
					}
					if err != nil {
						continue
					}
					why := "measured"
					if want == blocks && c.nic != nil {
						why = "native XDP is not available"
					}
					i := d.Transport()
					if i.Transmit != string(want) || !strings.Contains(i.Way, why) {
						t.Errorf("%s: %s, %q, want %s: %s", bpf.Mode(mode), i.Transmit, i.Way, want,
							why)
					}
					if err := d.Close(); err != nil {
						t.Error(err)
					}
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestGROIsRestored: a device on a veth turns GRO on while it is open. Its Close turns GRO off again, if it was off
// before, and does not change the other interface, whose user turned GRO on.
func TestGROIsRestored(t *testing.T) {
	a, _, net := xdpPair(t, topo.Options{OffloadsB: topo.Offloads{GRO: topo.On}}, nil)
	gro := func(h *topo.Host) topo.Switch {
		o, err := h.ReadOffloads(h.Link.Name)
		if err != nil {
			t.Fatal(err)
		}
		return o.GRO
	}
	if gro(net.A) != topo.On {
		t.Error("GRO is off while the device is open")
	}
	if err := a.Close(); err != nil || gro(net.A) != topo.Off || gro(net.B) != topo.On {
		t.Errorf("%v; GRO is %d on the closed device, %d on the other, whose user turned it on", err,
			gro(net.A), gro(net.B))
	}
}
