package matrix

import (
	"fmt"

	"xwarp/bench/endpoint"
	"xwarp/bench/relay"
	"xwarp/bench/relay/impair"
	"xwarp/bench/topo"
	"xwarp/tcp/tick"
)

// Sizes of the bandwidth curve, loss and reordering of the curves over a bad path, connections of the crowd.
var (
	sizes    = []int{64, 256, 1024, 4096, 65536, 1 << 20}
	losses   = []float64{0, 0.001, 0.01, 0.05}
	reorders = []float64{0.05, 0.2}
	crowds   = []int{1, 16, 256, 4096}
	mtus     = []int{1500, 3500, 9000}
)

// pathDelay is one way: the round trip is 1 ms.
const pathDelay = 500 * tick.Microsecond

// Standard returns the cases of the standard matrix.
func Standard() []Case {
	var all []Case
	for _, mtu := range mtus {
		all = append(all, frameCase(mtu))
	}
	for _, n := range sizes {
		all = append(all, sizeCase(n))
	}
	all = append(all, verbCase(), latencyCase(), connectCase(), crowdCase(), steadyCase())
	for _, l := range losses {
		all = append(all, pathCase("loss", l, impair.Config{Loss: l, Delay: pathDelay}))
	}
	for _, r := range reorders {
		all = append(all, pathCase("reorder", r, impair.Config{Reorder: r, Delay: pathDelay}))
	}
	return append(all, wanCase())
}

// frameCase is 1 MiB Writes against everything that carries the same octets.
func frameCase(mtu int) Case {
	tcp := bw(endpoint.TCP, endpoint.Write, mega)
	c := Case{
		Name: fmt.Sprintf("write-mtu%d", mtu), Title: fmt.Sprintf("RDMA Write of 1 MiB, MTU %d",
			mtu), MTU: mtu, Metric: Gbps, More: more,
		Variants: []Variant{
			{Name: ours, Spec: bw(endpoint.XDP, endpoint.Write, mega)},
			{Name: rawRing, Spec: raw(endpoint.Raw, mtu)},
			{Name: ourBare, Spec: with(bw(endpoint.XDP, endpoint.Write, mega), noMarkers)},
			{Name: ourGSO, Spec: with(bw(endpoint.XDP, endpoint.Write, mega), noMarkers, blocks),
				Offloads: sameSums},
			{Name: ourMarked, Spec: with(bw(endpoint.XDP, endpoint.Write, mega), blocks),
				Offloads: sameSums},
			{Name: rawCopy, Spec: with(raw(endpoint.Raw, mtu), func(s *endpoint.Spec) {
				s.Copy = true
			})},
			{Name: kernelSum, Spec: tcp, Offloads: sameSums},
			{Name: layered, Spec: with(bw(endpoint.Layered, endpoint.Write, mega), noMarkers),
				Offloads: sameSums},
			{Name: kernelCut, Spec: tcp, Offloads: sameFrames},
			{Name: kernelAll, Spec: tcp, Offloads: asTheyCome},
			{Name: workHot, Spec: timed(endpoint.Spec{Peer: endpoint.Memory,
				Mode: endpoint.Bandwidth, Size: mtu - 52})},
		},
	}
	if mtu == 1500 {
		c.Variants = append(c.Variants,
			Variant{Name: rawAsavie, Spec: raw(endpoint.Asavie, mtu)},
			// a frame of it lies within one page
			Variant{Name: ourLive, Spec: with(bw(endpoint.XDP, endpoint.Write, mega), live)},
			Variant{Name: ourNoCRC, Spec: with(bw(endpoint.XDP, endpoint.Write, mega), noCRC)},
			Variant{Name: ourV6, Spec: bw(endpoint.XDP, endpoint.Write, mega), IPv6: true})
	}
	return c
}

// sizeCase is one point of the bandwidth curve, and the message rate.
func sizeCase(n int) Case {
	c := Case{
		Name: fmt.Sprintf("size-%d", n), Title: fmt.Sprintf("Messages of %d octets, MTU 1500", n),
		MTU: 1500, Metric: Messages,
		Variants: []Variant{
			{Name: ours, Spec: bw(endpoint.XDP, endpoint.Write, n)},
			{Name: ourMarked, Spec: with(bw(endpoint.XDP, endpoint.Write, n), blocks),
				Offloads: sameSums},
			{Name: ourLive, Spec: with(bw(endpoint.XDP, endpoint.Write, n), live)},
			{Name: kernelAll, Spec: bw(endpoint.TCP, endpoint.Write, n), Offloads: asTheyCome},
			{Name: kernelSum, Spec: bw(endpoint.TCP, endpoint.Write, n), Offloads: sameSums},
		},
	}
	if n == 64 {
		c.More = more
		c.Variants = append(c.Variants,
			Variant{Name: "xwarp, no packing", Spec: with(bw(endpoint.XDP, endpoint.Write, n),
				func(s *endpoint.Spec) {
					s.NoPack = true
				})},
			Variant{Name: "kernel TCP, TCP_NODELAY", Spec: with(bw(endpoint.TCP, endpoint.Write, n),
				func(s *endpoint.Spec) {
					s.NoDelay = true
				}), Offloads: asTheyCome})
	}
	return c
}

func verbCase() Case { return verbsOf("verbs", "The verbs, 1 MiB, MTU 1500", 1500, endpoint.XDP) }

func verbsOf(name, title string, mtu int, p endpoint.Peer) Case {
	c := Case{
		Name: name, Title: title, MTU: mtu, Metric: Gbps,
		Variants: []Variant{
			{Name: "Write", Spec: bw(p, endpoint.Write, mega)},
			{Name: "Read", Spec: bw(p, endpoint.Read, mega)},
			{Name: "Send", Spec: bw(p, endpoint.Send, mega)},
			{Name: "Write+Send", Spec: bw(p, endpoint.WriteSend, mega)},
			{Name: "Write, both directions", Spec: with(bw(p, endpoint.Write, mega), bothWays)},
		},
	}
	for i := range c.Variants {
		if p == endpoint.Layered {
			c.Variants[i].Offloads = sameSums
		}
	}
	return c
}

func bothWays(s *endpoint.Spec) { s.Bidirectional = true }

func latencyCase() Case {
	lat := func(p endpoint.Peer, v endpoint.Verb) endpoint.Spec {
		return timed(endpoint.Spec{Peer: p, Verb: v, Mode: endpoint.Latency, Size: 64})
	}
	sleeping := func(s endpoint.Spec) endpoint.Spec { s.Sleep = true; return s }
	return Case{
		Name: "latency", Title: "Ping-pong of 64 octets, one way (Read: the whole operation)",
		MTU: 1500, Metric: P50, More: more,
		Variants: []Variant{
			{Name: "Write", Spec: lat(endpoint.XDP, endpoint.Write)},
			{Name: rawRing, Spec: with(lat(endpoint.Raw, endpoint.Write), func(s *endpoint.Spec) {
				s.Size = 64 + 52 + 20
			})},
			{Name: "kernel TCP, blocking", Spec: sleeping(lat(endpoint.TCP, endpoint.Write)),
				Offloads: asTheyCome},
			{Name: "kernel TCP, spinning", Spec: lat(endpoint.TCP, endpoint.Write),
				Offloads: asTheyCome},
			{Name: "Send", Spec: lat(endpoint.XDP, endpoint.Send)},
			{Name: "Read", Spec: lat(endpoint.XDP, endpoint.Read)},
			{Name: "Write, sleeping", Spec: sleeping(lat(endpoint.XDP, endpoint.Write))},
			{Name: rawAsavie, Spec: with(lat(endpoint.Asavie, endpoint.Write),
				func(s *endpoint.Spec) {
					s.Size = 64 + 52 + 20
				})},
			{Name: layered, Spec: lat(endpoint.Layered, endpoint.Write), Offloads: asTheyCome},
		},
	}
}

func connectCase() Case {
	dial := func(p endpoint.Peer) endpoint.Spec {
		return timed(endpoint.Spec{Peer: p, Mode: endpoint.Connect, Sleep: true})
	}
	return Case{
		Name: "connect", Title: "Connections per second, one after the other", MTU: 1500,
		Metric: Messages,
		Variants: []Variant{
			{Name: ours, Spec: dial(endpoint.XDP)},
			{Name: kernelAll, Spec: dial(endpoint.TCP), Offloads: asTheyCome},
			{Name: layered, Spec: dial(endpoint.Layered), Offloads: asTheyCome},
		},
	}
}

func crowdCase() Case {
	c := Case{Name: "crowd", Title: "Writes of 64 KiB over many connections, MTU 1500", MTU: 1500,
		Metric: Gbps, More: more}
	for _, n := range crowds {
		s := bw(endpoint.XDP, endpoint.Write, 65536)
		s.Conns, s.Depth = n, max(2, 32/n)
		s.Warmup, s.Duration = 4*warmup, 2*duration // until every connection has left slow start
		c.Variants = append(c.Variants, Variant{Name: crowdName(n), Spec: s})
	}
	return c
}

// steadyCase is long enough for whatever comes only now and then, and has the garbage collector of an ordinary program.
func steadyCase() Case {
	collect := func(s *endpoint.Spec) { s.Collect, s.Duration = true, steady }
	return Case{
		Name:  steadyName,
		Title: "Writes of 64 KiB for 30 s, MTU 1500, garbage collector as it comes", MTU: 1500,
		Metric: Gbps, Rounds: 1,
		Variants: []Variant{{Name: ours, Spec: with(bw(endpoint.XDP, endpoint.Write, 65536),
			collect)}},
	}
}

const steadyName = "steady"

func crowdName(n int) string {
	if n == 1 {
		return "1 connection"
	}
	return fmt.Sprintf("%d connections", n)
}

// pathCase is bulk data over a bad path of 1 ms round trip. Both sides sleep when idle: the relay needs a processor.
func pathCase(what string, rate float64, bad impair.Config) Case {
	long := func(s endpoint.Spec) endpoint.Spec {
		s.Sleep, s.Warmup, s.Duration = true, 2*warmup, lossy
		return s
	}
	back := impair.Config{Delay: pathDelay}
	return Case{
		Name: fmt.Sprintf("%s-%g", what, 100*rate),
		Title: fmt.Sprintf("64 KiB Writes, %s of %g %% of packets towards the receiver, RTT 1 "+
			"ms, MTU 1500", what, 100*rate),
		MTU: 1500, Metric: Gbps, Path: &relay.Config{AB: bad, BA: back},
		Variants: []Variant{
			{Name: ours, Spec: long(bw(endpoint.XDP, endpoint.Write, 65536)),
				Offloads: topo.NoOffloads},
			{Name: ourBare, Spec: with(long(bw(endpoint.XDP, endpoint.Write, 65536)), noMarkers),
				Offloads: topo.NoOffloads},
			{Name: kernelSum, Spec: long(bw(endpoint.TCP, endpoint.Write, 65536)),
				Offloads: topo.NoOffloads},
		},
	}
}

// Round trip, loss and transfer of the wide area's case. At 1 % the window is some 12 segments, whatever the
// host can do, so a transfer of 4 MiB has 30 losses to recover from in some 4 s; five rounds have 150.
const (
	wanDelay    = 10 * tick.Millisecond // one way
	wanLoss     = 0.01
	wanSize     = 256 << 10
	wanMessages = 16
)

// wanCase is a whole transfer, from its first octet to the acknowledgement of its last, over a path where
// loss recovery and congestion control alone decide. The kernel's sockets have CUBIC, as the engine has.
func wanCase() Case {
	whole := func(s endpoint.Spec) endpoint.Spec {
		s.Sleep, s.Iterations, s.Depth, s.Moderation = true, wanMessages, 8, 1
		return s
	}
	return Case{
		Name: "wan-1",
		Title: "Transfer of 4 MiB, loss of 1 % of packets towards the receiver, RTT 20 ms, " +
			"CUBIC, MTU 1500",
		MTU: 1500, Metric: Gbps, Path: &relay.Config{AB: impair.Config{Loss: wanLoss,
			Delay: wanDelay}, BA: impair.Config{Delay: wanDelay}},
		Variants: []Variant{
			{Name: ours, Spec: whole(bw(endpoint.XDP, endpoint.Write, wanSize)),
				Offloads: topo.NoOffloads},
			{Name: ourBare, Spec: whole(with(bw(endpoint.XDP, endpoint.Write, wanSize), noMarkers)),
				Offloads: topo.NoOffloads},
			{Name: kernelSum, Spec: whole(bw(endpoint.TCP, endpoint.Write, wanSize)),
				Offloads: topo.NoOffloads},
		},
	}
}
