package xdp_test

import (
	"net/netip"
	"testing"

	"xwarp/bench/topo"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/verbs"
	"xwarp/engine/xdp"
	"xwarp/ring"
)

// TestXDPFaults: data arrives right although received packets are lost, duplicated, corrupted or out of order. With
// blocks these packets are whole blocks. Blocks are not corrupted: nothing corrupts on a veth, and their partial
// checksum does not protect their headers.
//
//req:rfc5044-7.1.4-1 rfc5041-2.3-3
func TestXDPFaults(t *testing.T) {
	const block = 16 << 10
	for _, tc := range []struct {
		name      string
		rates     rates
		noMarkers bool
		blocks    bool
	}{
		{"loss", rates{drop: 0.02}, false, false},
		{"loss without markers", rates{drop: 0.02}, true, false},
		{"reorder", rates{delay: 0.05}, false, false},
		{"duplicate", rates{duplicate: 0.05}, false, false},
		{"corrupt", rates{corrupt: 0.01}, false, false},
		{"all", rates{drop: 0.02, delay: 0.05, duplicate: 0.01, corrupt: 0.01}, false, false},
		{"blocks/loss", rates{drop: 0.15, least: block}, false, true},
		{"blocks/loss without markers", rates{drop: 0.15, least: block}, true, true},
		{"blocks/reorder", rates{delay: 0.2, least: block}, false, true},
		{"blocks/duplicate", rates{duplicate: 0.2, least: block}, false, true},
		{"blocks/all", rates{drop: 0.1, delay: 0.2, duplicate: 0.1, least: block}, false, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var ports []*faulty
			da, db, net := xdpPair(t, topo.Options{}, func(c *xdp.Config) {
				c.MPA = verbs.MPAWith(!tc.noMarkers, true)
				if tc.blocks {
					c.Transmit = xdp.TransmitAuto
				}
				c.Wrap = func(_ int, p ring.Port) (ring.Port, error) {
					f := newFaulty(p, tc.rates)
					ports = append(ports, f)
					return f, nil
				}
			})
			const size = 8 << 20
			a, b := verbstest.New(t, da, size), verbstest.New(t, db, size)
			verbstest.Connect(t, a, b, netip.AddrPortFrom(net.B.Addr4.Addr(), 7174))
			verbstest.Exercise(t, a, b)
			i, err := b.QP.Info()
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("receiver: %+v", i.MPA)
			disordered := tc.rates.drop > 0 || tc.rates.delay > 0
			switch placed := i.MPA.OutByMarker + i.MPA.OutByChain; {
			case disordered && i.MPA.Behind == 0:
				t.Error("no segment arrived out of order: the faults had no effect")
			case tc.noMarkers && i.MPA.HeldHighWater == 0:
				t.Error("without markers, bytes after a gap were not held")
			case !tc.noMarkers && (placed < i.MPA.Behind*9/10 || i.MPA.HeldHighWater > 0):
				t.Errorf(
					"with markers, %d of %d segments behind a gap were placed and %d bytes held",
					placed, i.MPA.Behind, i.MPA.HeldHighWater)
			}
			if c := i.TCP.Counters; c.SplitEMSS+c.SplitWindow+c.SplitRetransmit > 0 {
				t.Errorf("alignment was lost: %+v", c)
			}
			for _, d := range []*xdp.Device{da, db} {
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			}
			n, hit := ports[1].Stats(), ports[1].hit // of the receiver, which has one queue
			t.Logf("receiver: %d bytes in %d packets, %d faults", n.RxBytes, n.RxPackets, hit)
			if whole := n.RxPackets < n.RxBytes/4000; hit == 0 || whole != tc.blocks {
				t.Errorf("receiver: %d bytes in %d packets, %d faults", n.RxBytes, n.RxPackets, hit)
			}
		})
	}
}
