package xdp_test

import (
	"fmt"
	"net/netip"
	"testing"

	"xwarp/bench/topo"
	"xwarp/ddp/rdmap"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/verbs"
	"xwarp/engine/xdp"
)

// BenchmarkWrite sends 1 MiB Writes from one host to the other, eight outstanding.
func BenchmarkWrite(b *testing.B) {
	for _, mtu := range []int{1500, 3506, 9000} {
		for _, markers := range []bool{true, false} {
			b.Run(fmt.Sprintf("mtu=%d/markers=%v", mtu, markers), func(b *testing.B) {
				da, db, net := xdpPair(b, topo.Options{MTU: mtu}, func(c *xdp.Config) {
					c.Log = nil
					c.MPA = verbs.MPAWith(markers, true)
				})
				const block, depth = 1 << 20, 8
				x, y := verbstest.New(b, da, block*depth), verbstest.New(b, db, block*depth)
				verbstest.Connect(b, x, y, netip.AddrPortFrom(net.B.Addr4.Addr(), 7174))
				b.SetBytes(block)
				b.ReportAllocs()
				b.ResetTimer()
				posted, done := 0, 0
				var c [depth]verbs.Completion
				for done < b.N {
					for posted < b.N && posted-done < depth {
						x.Post(verbs.SendWR{Op: rdmap.WRWrite,
							SGL:        []verbs.SGE{x.MR.SGE(posted%depth*block, block)},
							RemoteSTag: y.MR.STag(), RemoteTO: ddpTO(posted % depth * block)})
						posted++
					}
					x.Wait()
					done++
				}
				_ = c
			})
		}
	}
}
