package xdp_test

import (
	"crypto/rand"
	"log/slog"
	"net/netip"
	"testing"

	"xwarp/bench/topo"
	"xwarp/bpf"
	"xwarp/bpf/needs"
	"xwarp/engine/esp"
	"xwarp/engine/host/xfrm"
	"xwarp/engine/ipsec"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/xdp"
)

// testSAs returns the SAs between hosts a and b, in both directions, as the state of each host.
func testSAs(mode esp.Mode, a, b netip.Addr, spi uint32) (forA, forB *xfrm.Snapshot) {
	sa := func(from, to netip.Addr, spi uint32) *xfrm.SA {
		key := make([]byte, 20)
		rand.Read(key)
		return &xfrm.SA{SA: esp.SA{SPI: spi, Mode: mode, ESN: true, Keymat: key}, Src: from,
			Dst: to}
	}
	there, back := sa(a, b, spi), sa(b, a, spi+1)
	return &xfrm.Snapshot{Outbound: []*xfrm.SA{there}, Inbound: []*xfrm.SA{back}},
		&xfrm.Snapshot{Outbound: []*xfrm.SA{back}, Inbound: []*xfrm.SA{there}}
}

// TestXDPTransferOverESP runs verbs over AF_XDP with every connection protected by ESP. The steering programs must see
// frames of ESP, but not of TCP.
//
//req:rfc5040-8.2.2-2 rfc5041-8.4.2-2
func TestXDPTransferOverESP(t *testing.T) {
	needs.XSK(t)
	needs.NetNS(t)
	for _, tc := range []struct {
		name   string
		mtu    int
		v6     bool
		mode   esp.Mode
		queues int
	}{
		{"transport", 0, false, esp.Transport, 1}, {"transport IPv6", 0, true, esp.Transport, 1},
		{"transport 9000", 9000, false, esp.Transport, 1},
		{"transport 4 queues", 0, false, esp.Transport, 4}, {"tunnel", 0, false, esp.Tunnel, 1},
		{"tunnel IPv6 9000", 9000, true, esp.Tunnel, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tn, err := topo.New(topo.Options{MTU: tc.mtu, Queues: tc.queues})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { tn.Close() })
			at, from := tn.B.Addr4.Addr(), tn.A.Addr4.Addr()
			if tc.v6 {
				at, from = tn.B.Addr6.Addr(), tn.A.Addr6.Addr()
			}
			open := func(h *topo.Host, s *xfrm.Snapshot) (d *xdp.Device) {
				c := xdp.Config{Interface: h.Link.Name, IPsec: &xdp.IPsecConfig{
					Rules: []ipsec.Rule{{Mode: tc.mode}}, Follow: xfrm.Static(s)}}
				c.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
				if err := h.Do(func() (err error) {
					d, err = xdp.Open(c)
					return err
				}); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { d.Close() })
				return d
			}
			sa, sb := testSAs(tc.mode, from, at, 0x10001)
			da, db := open(tn.A, sa), open(tn.B, sb)
			for i := range uint16(tc.queues) {
				a, b := verbstest.New(t, da, 4<<20), verbstest.New(t, db, 4<<20)
				verbstest.Connect(t, a, b, netip.AddrPortFrom(at, 7174+i))
				verbstest.Exercise(t, a, b)
			}
			for _, d := range []*xdp.Device{da, db} {
				n := 0
				s, err := d.IPsec(func(*xfrm.SA, *esp.In, *esp.Out, bool) { n++ })
				if err != nil || n != 2 || s.PacketsIn < 100 || s.PacketsOut < 100 ||
					s.Forged+s.Replayed+s.Malformed > 0 {
					t.Errorf("%+v, %v", s, err)
				}
				frames := steering(t, d)
				if n := frames[bpf.Flow] + frames[bpf.Listener]; frames[bpf.ESP] < 100 || n > 0 {
					t.Errorf("%d frames of ESP, %d of TCP", frames[bpf.ESP], n)
				}
			}
		})
	}
}
