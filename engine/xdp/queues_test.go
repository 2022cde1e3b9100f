package xdp_test

import (
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"xwarp/bench/topo"
	"xwarp/bpf/needs"
	"xwarp/engine/internal/core"
	"xwarp/engine/sockets"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/xdp"
)

// kernelOn opens a kernel-transport device on a host.
func kernelOn(t *testing.T, h *topo.Host) *core.Device {
	t.Helper()
	d, err := sockets.Open(sockets.Config{
		Dial: h.Dial, Listen: h.Listen,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// TestQueues opens connections, in both directions, between a device with two queues and a kernel, which sends on
// either queue. Both queues must receive frames, and frames on the queue of another worker must be handed over. A
// connection that moves to another worker keeps the MTU of its route.
func TestQueues(t *testing.T) {
	needs.XSK(t)
	needs.NetNS(t)
	tn, err := topo.New(topo.Options{Queues: 2, OffloadsB: topo.NoOffloads})
	if err != nil {
		t.Fatal(err)
	}
	defer tn.Close()
	const mtu = 1400
	peer := tn.B.Addr4.Addr()
	if err := tn.A.Netlink().RouteAdd(&netlink.Route{LinkIndex: tn.A.Link.Index, MTU: mtu,
		Dst: &net.IPNet{IP: peer.AsSlice(), Mask: net.CIDRMask(32, 32)}}); err != nil {
		t.Fatal(err)
	}
	var da *xdp.Device
	if err := tn.A.Do(func() (err error) {
		da, err = xdp.Open(xdp.Config{Interface: tn.A.Link.Name, Queues: []int{0, 1},
			TCP: xdp.TCPConfig{NoMTUProbe: true}}) // a probe would raise the path MTU
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer da.Close()
	db := kernelOn(t, tn.B)
	var s xdp.Stats
	for i := range 64 { // the queue of a connection is random
		a, b := verbstest.New(t, da, 1<<20), verbstest.New(t, db, 1<<20)
		verbstest.Connect(t, a, b, netip.AddrPortFrom(peer, 0))
		verbstest.Exercise(t, a, b)
		if v, err := a.QP.Info(); err != nil || v.TCP.PathMTU != mtu {
			t.Errorf("path MTU %d, that of the route is %d: %v", v.TCP.PathMTU, mtu, err)
		}
		c, d := verbstest.New(t, db, 1<<20), verbstest.New(t, da, 1<<20)
		verbstest.Connect(t, c, d, netip.AddrPortFrom(tn.A.Addr4.Addr(), uint16(7200+i)))
		verbstest.Exercise(t, c, d)
		if s, err = da.Stats(); err != nil {
			t.Fatal(err)
		}
		if q := s.Queues; i > 4 && len(q) == 2 && q[0].Stack.RxFrames > 0 &&
			q[1].Stack.RxFrames > 0 && q[0].Stack.HandedOver+q[1].Stack.HandedOver > 0 {
			return
		}
	}
	if len(s.Queues) != 2 || s.Queues[0].Stack.RxFrames == 0 || s.Queues[1].Stack.RxFrames == 0 {
		t.Errorf("not every queue received: %+v", s.Queues)
	}
	if s.Queues[0].Stack.HandedOver+s.Queues[1].Stack.HandedOver == 0 {
		t.Error("no frame arrived on the queue of another worker: the test proves nothing")
	}
}
