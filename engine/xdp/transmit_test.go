package xdp_test

import (
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"xwarp/bench/topo"
	"xwarp/bpf/needs"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/verbs"
	"xwarp/engine/xdp"
	"xwarp/ring"
	"xwarp/ring/gso"
	"xwarp/ring/monitor"
)

// transmitCase is a link and the traffic of its two ends.
type transmitCase struct {
	name        string
	mtu         int
	markers, v6 bool
}

// transmits sends data by every verb over devices in one transmit mode, and closes them. Every arrived segment must
// start with an FPDU and hold whole FPDUs. It returns the ports.
func (tc *transmitCase) transmits(t *testing.T, way xdp.Transmit) (ports []ring.Port) {
	t.Helper()
	var mu sync.Mutex
	hub := monitor.NewHub(nil)
	da, db, net := xdpPair(t, topo.Options{MTU: tc.mtu, OffloadsA: topo.NoOffloads,
		OffloadsB: topo.NoOffloads}, func(c *xdp.Config) {
		c.Transmit, c.MPA = way, verbs.MPAWith(tc.markers, true)
		c.Wrap = func(_ int, p ring.Port) (ring.Port, error) {
			mu.Lock()
			defer mu.Unlock()
			ports = append(ports, p)
			return hub.Wrap(p, ""), nil // as in a daemon
		}
	})
	if way == xdp.TransmitLive {
		time.Sleep(500 * time.Millisecond) // both detect the program at the other end
	}
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

// TestTransmitGSO: both ends send blocks, which the kernel segments.
func TestTransmitGSO(t *testing.T) {
	for _, tc := range []transmitCase{{name: "1500"}, {name: "9000", mtu: 9000},
		{name: "ipv6", v6: true}, {name: "markers", markers: true},
		{name: "markers-9000", mtu: 9000, markers: true}, {name: "markers-ipv6", markers: true,
			v6: true}} {
		t.Run(tc.name, func(t *testing.T) {
			for i, p := range tc.transmits(t, xdp.TransmitGSO) {
				s := p.(*gso.Port).GSOStats()
				t.Logf("end %d: %+v", i, s)
				if s.Blocks == 0 || s.Dropped > 0 || s.Segments < 2*s.Blocks {
					t.Errorf("end %d: %+v", i, s)
				}
			}
		})
	}
}

// TestTransmitLive: both ends send live frames.
func TestTransmitLive(t *testing.T) {
	for _, tc := range []transmitCase{{name: "1500"}, {name: "3346", mtu: 3346},
		{name: "9000", mtu: 9000, markers: true}, {name: "ipv6", v6: true},
		{name: "markers", markers: true}} {
		t.Run(tc.name, func(t *testing.T) {
			for i, p := range tc.transmits(t, xdp.TransmitLive) {
				s := p.Live()
				t.Logf("end %d: %+v", i, s)
				if s.Runs == 0 || s.Failed > 0 {
					t.Errorf("end %d: %+v", i, s)
				}
			}
		})
	}
}

// TestTransmitRefused: an impossible transmit mode fails with the reason and the next step.
func TestTransmitRefused(t *testing.T) {
	needs.XSK(t)
	needs.NetNS(t)
	net, err := topo.New(topo.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer net.Close()
	for way, want := range map[xdp.Transmit]string{xdp.TransmitGSO: "ethtool -K " +
		net.A.Link.Name + " tx off", "carrier pigeon": `"packet-gso"`} {
		err := net.A.Do(func() error {
			d, err := xdp.Open(xdp.Config{Interface: net.A.Link.Name, Transmit: way})
			if err == nil {
				d.Close()
			}
			return err
		})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", way, err, want)
		}
	}
}

// TestTransmitAuto: on a veth, live frames in packets of at most 3346 bytes. While the peer has no XDP program, packets
// are as long as the MTU.
func TestTransmitAuto(t *testing.T) {
	needs.XSK(t)
	needs.NetNS(t)
	for _, tc := range []struct {
		mtu       int
		on, alone string // start of the transmit mode's description
	}{{1500, "xdp-live in packets of 1500 bytes: live", "xdp in packets of 1500 bytes: the driver"},
		{3346, "xdp-live in packets of 3346 bytes: live frames measured fastest",
			"xdp in packets of 3346"},
		{9000, "xdp-live in packets of 3346 bytes: live frames must fit in a page",
			"xdp in packets of 9000 bytes: the driver"}} {
		da, db, _ := xdpPair(t, topo.Options{MTU: tc.mtu, OffloadsA: topo.NoOffloads,
			OffloadsB: topo.NoOffloads},
			func(c *xdp.Config) { c.Transmit = xdp.TransmitAuto })
		becomes := func(want string) {
			t.Helper()
			var got string
			for range 50 { // the driver is queried five times a second
				i := da.Transport()
				if got = i.Way; i.Transmit == "xdp-live" && strings.HasPrefix(got, want) {
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
			t.Errorf("MTU %d: %q, want %q", tc.mtu, got, want)
		}
		becomes(tc.on)
		if err := db.Close(); err != nil {
			t.Error(err)
		}
		becomes(tc.alone)
	}
}
