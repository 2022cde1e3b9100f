package matrix

import (
	"fmt"

	"xwarp/bench/endpoint"
	"xwarp/bench/process"
	"xwarp/bench/relay"
	"xwarp/bench/relay/impair"
	"xwarp/tcp/tick"
)

// Values of the quantities that the standard matrix varies: message sizes in bytes, fractions of packets that a bad
// path loses or reorders, numbers of connections, and MTUs.
var (
	sizes    = []int{64, 1024, 65536, 1 << 20}
	losses   = []float64{0, 0.001, 0.01, 0.05}
	reorders = []float64{0.2}
	crowds   = []int{1, 16, 256, 4096}
	oneSizes = []int{64, 4096, 65536} // sizes of messages in oneCase
	mtus     = []int{1500, 3300, 9000}
)

// pathDelay is the delay of a bad path in each direction: the round trip takes 1 ms.
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
	all = append(all, verbCase("verbs", "The verbs, 1 MiB, MTU 1500", 1500, endpoint.XDP),
		latencyCase(), modeCase())
	for _, n := range oneSizes {
		all = append(all, oneCase(n))
	}
	all = append(all, connectCase(), crowdCase(), neighbourCase(), steadyCase())
	all = append(all, pathCases(losses, reorders)...)
	return append(all, wanCase())
}

// pathCases returns a case for each loss and each reordering of a bad path.
func pathCases(losses, reorders []float64) (list []Case) {
	for _, l := range losses {
		list = append(list, pathCase("loss", l, impair.Config{Loss: l}))
	}
	for _, r := range reorders {
		list = append(list, pathCase("reorder", r, impair.Config{Reorder: r}))
	}
	return list
}

// frameCase compares Writes of 1 MiB with all other ways to carry the same bytes.
func frameCase(mtu int) Case {
	xdp, tcp := writes(endpoint.XDP, mebibyte), writes(endpoint.TCP, mebibyte)
	mpa := writes(endpoint.Layered, mebibyte)
	c := Case{
		Name:  fmt.Sprintf("write-mtu%d", mtu),
		Title: fmt.Sprintf("RDMA Write of 1 MiB, MTU %d", mtu), MTU: mtu, Metric: Gbps,
		More: extraRounds,
		Variants: []Variant{
			variant(autoBare, xdp, noMarkers, auto).on(asTheyCome),
			variant(ourAuto, xdp, auto).on(asTheyCome),
			variant(ours, xdp),
			variant(rawRing, raw(endpoint.Raw, mtu)),
			variant(ourBare, xdp, noMarkers),
			variant(ourGSO, xdp, noMarkers, withGSO).on(noOffloads),
			variant(ourMarked, xdp, withGSO).on(noOffloads),
			variant(rawCopy, raw(endpoint.Raw, mtu), copying),
			variant(kernelSum, tcp).on(noOffloads),
			variant(layered, mpa, noMarkers).on(noOffloads),
			variant(layeredAs, mpa, noMarkers).on(asTheyCome),
			variant(fromOther, mpa, noMarkers, auto, toXDP).on(asTheyCome),
			variant(toOther, xdp, noMarkers, auto, toLayered).on(asTheyCome),
			variant(kernelCut, tcp).on(sameFrames),
			variant(kernelAll, tcp).on(asTheyCome),
		},
	}
	if mtu == 1500 {
		c.Variants = append(c.Variants,
			variant(rawAsavie, raw(endpoint.Asavie, mtu)),
			variant(ourNoCRC, xdp, noCRC),
			variant(ourV6, xdp).overIPv6())
	}
	return c
}

// sizeCase compares bandwidth and message rate for messages of n bytes.
func sizeCase(n int) Case {
	xdp, tcp := writes(endpoint.XDP, n), writes(endpoint.TCP, n)
	c := Case{
		Name: fmt.Sprintf("size-%d", n), Title: fmt.Sprintf("Messages of %d bytes, MTU 1500", n),
		MTU: 1500, Metric: Messages,
		Variants: []Variant{
			variant(ourAuto, xdp, auto).on(asTheyCome),
			variant(ours, xdp),
			variant(ourMarked, xdp, withGSO).on(noOffloads),
			variant(kernelAll, tcp).on(asTheyCome),
			variant(kernelSum, tcp).on(noOffloads),
		},
	}
	if n == 64 {
		c.More = extraRounds
		c.Variants = append(c.Variants,
			variant("xwarp, no packing", xdp, noPack),
			variant("kernel TCP, TCP_NODELAY", tcp, noDelay).on(asTheyCome))
	}
	return c
}

func verbCase(name, title string, mtu int, p endpoint.Peer) Case {
	c := Case{
		Name: name, Title: title, MTU: mtu, Metric: Gbps,
		Variants: append(byVerb(p, mebibyte),
			variant("Write, both directions", writes(p, mebibyte), bothWays)),
	}
	if p == endpoint.Layered {
		for i := range c.Variants {
			c.Variants[i].Offloads = noOffloads
		}
	}
	return c
}

// byVerb returns a variant for each verb, all with messages of the same size.
func byVerb(p endpoint.Peer, size int) []Variant {
	return []Variant{
		variant("Write", writes(p, size)),
		variant("Read", bw(p, endpoint.Read, size)),
		variant("Send", bw(p, endpoint.Send, size)),
		variant("Write+Send", bw(p, endpoint.WriteSend, size)),
	}
}

const latencyTitle = "Ping-pong of %d bytes, one way (Read: the whole operation)"

func latencyCase() Case {
	const n, packet = 64, 64 + 52 + 20
	tcp := lat(endpoint.TCP, endpoint.Write, n)
	return Case{
		Name: "latency", Title: fmt.Sprintf(latencyTitle, n), MTU: 1500, Metric: P50,
		More: extraRounds,
		Variants: []Variant{
			variant("Write", lat(endpoint.XDP, endpoint.Write, n)),
			variant("Write, as it comes",
				lat(endpoint.XDP, endpoint.Write, n), auto).on(asTheyCome),
			variant(rawRing, lat(endpoint.Raw, endpoint.Write, packet)),
			variant("kernel TCP, blocking", tcp, sleeping).on(asTheyCome),
			variant("kernel TCP, spinning", tcp).on(asTheyCome),
			variant("Send", lat(endpoint.XDP, endpoint.Send, n)),
			variant("Read", lat(endpoint.XDP, endpoint.Read, n)),
			variant("Write, adaptive", lat(endpoint.XDP, endpoint.Write, n), sleeping),
			variant("Write, sleep", lat(endpoint.XDP, endpoint.Write, n), sleepAtOnce),
			variant(rawAsavie, lat(endpoint.Asavie, endpoint.Write, packet)),
			variant(layered, lat(endpoint.Layered, endpoint.Write, n)).on(asTheyCome),
		},
	}
}

// modeCase compares the modes of the XDP program. On a veth with one queue, auto means generic.
func modeCase() Case {
	xdp := lat(endpoint.XDP, endpoint.Write, 64)
	return Case{
		Name: "latency-mode", Title: "Ping-pong of 64 bytes by Writes, one way, by XDP mode",
		MTU: 1500, Metric: P50, More: extraRounds,
		Variants: []Variant{variant("generic", xdp, generic), variant("native", xdp, native)},
	}
}

// oneCase has one message under way at a time: the next one waits for the completion of the previous one. Kernel TCP
// has no completions. So in its variants the peer answers each message with as many bytes, as in a ping-pong, and the
// programs spin or block. A Read over the kernel transport sleeps until the peer answers, like a blocking program.
func oneCase(n int) Case {
	one := func(s *endpoint.Spec) { s.Depth, s.Moderation = 1, 1 }
	c := Case{
		Name:  fmt.Sprintf("one-%d", n),
		Title: fmt.Sprintf("One message of %d bytes under way at a time, MTU 1500", n), MTU: 1500,
		Metric: Messages, More: extraRounds,
		Variants: []Variant{
			variant("ping-pong by Writes", lat(endpoint.XDP, endpoint.Write, n)),
			variant("kernel TCP, request and response",
				lat(endpoint.TCP, endpoint.Write, n)).on(asTheyCome),
			variant("kernel TCP, request and response, blocking",
				lat(endpoint.TCP, endpoint.Write, n), sleeping).on(asTheyCome),
		},
	}
	verbs := []endpoint.Verb{endpoint.Write, endpoint.Send, endpoint.Read}
	for i, name := range []string{"Write", "Send", "Read"} {
		if i > 0 && n != oneSizes[0] {
			break
		}
		xdp := bw(endpoint.XDP, verbs[i], n)
		c.Variants = append(c.Variants, variant(name, xdp, one),
			variant(name+", as it comes", xdp, one, auto).on(asTheyCome),
			variant(name+", "+layered, bw(endpoint.Layered, verbs[i], n), one).on(asTheyCome))
	}
	return c
}

func connectCase() Case {
	dial := func(p endpoint.Peer) endpoint.Spec {
		return timed(endpoint.Spec{Peer: p, Mode: endpoint.Connect, Sleep: true, Collect: true})
	}
	return Case{
		Name: "connect", Title: "Connections per second, one after the other", MTU: 1500,
		Metric: Messages,
		Variants: []Variant{
			variant(ours, dial(endpoint.XDP)),
			variant(ourAuto, dial(endpoint.XDP), auto).on(asTheyCome),
			variant(kernelAll, dial(endpoint.TCP)).on(asTheyCome),
			variant(layered, dial(endpoint.Layered)).on(asTheyCome),
		},
	}
}

func crowdCase() Case {
	c := Case{Name: "crowd", Title: "Writes of 64 KiB over many connections, MTU 1500", MTU: 1500,
		Metric: Gbps, More: extraRounds}
	for _, n := range crowds {
		name := fmt.Sprintf("%d connections", n)
		if n == 1 {
			name = "1 connection"
		}
		many := func(s *endpoint.Spec) {
			s.Conns, s.Depth = n, max(2, 32/n)
			s.Warmup, s.Duration = 4*warmup, 2*duration // after the warm-up all connections have left slow start
		}
		xdp, tcp := writes(endpoint.XDP, 65536), writes(endpoint.TCP, 65536)
		c.Variants = append(c.Variants, variant(name, xdp, many))
		if n >= 256 {
			c.Variants = append(c.Variants,
				variant(name+", as it comes", xdp, many, auto).on(asTheyCome),
				variant("kernel TCP, "+name, tcp, many).on(noOffloads),
				variant("kernel TCP, "+name+", as it comes", tcp, many).on(asTheyCome))
		}
	}
	return c
}

// neighbourCase measures a user's ping-pong over a daemon while another user keeps the same worker busy with requests
// that send no frame. The other user's program also uses the processors. So a control variant measures the ping-pong
// beside a program that only keeps both processors busy.
func neighbourCase() Case {
	spec := lat(endpoint.Daemon, endpoint.Write, 8)
	spec.Duration = neighbourly
	return Case{
		Name: "neighbour", MTU: 1500, Metric: P99, Daemons: true, More: extraRounds,
		Title: "Ping-pong of 8 bytes over xwarpd beside another user on the same queue",
		Variants: []Variant{
			variant("alone", spec),
			variant("beside busy processors", spec).beside(process.Burn),
			variant("beside refused Reads", spec).beside(process.Refuse),
			variant("beside binding windows", spec).beside(process.Bind),
		},
	}
}

// steadyCase runs long enough for rare events, with the garbage collector of an ordinary program.
func steadyCase() Case {
	collect := func(s *endpoint.Spec) { s.Collect, s.Duration = true, steady }
	xdp := writes(endpoint.XDP, 65536)
	return Case{
		Name:  steadyName,
		Title: "Writes of 64 KiB for 30 s, MTU 1500, garbage collector as it comes", MTU: 1500,
		Metric: Gbps, Rounds: 1,
		Variants: []Variant{variant(ours, xdp, collect),
			variant(ourAuto, xdp, collect, auto).on(asTheyCome)},
	}
}

const steadyName = "steady"

// overPath returns variants that carry messages of size bytes over a path with a relay: xwarp with and without markers,
// xwarp with transmit auto, and kernel TCP. All ends sleep when idle, because the relay needs a processor. A relay is a
// wire: it carries no frame above the MTU. So the kernel cuts the blocks of transmit auto, as in front of a NIC.
func overPath(size int, change option) []Variant {
	xdp := writes(endpoint.XDP, size)
	return []Variant{
		variant(ours, xdp, sleeping, change).on(noOffloads),
		variant(ourCut, xdp, sleeping, change, auto).on(noOffloads),
		variant(ourBare, xdp, sleeping, change, noMarkers).on(noOffloads),
		variant(kernelSum, writes(endpoint.TCP, size), sleeping, change).on(noOffloads),
	}
}

// pathCase measures bulk data over a path of 1 ms round trip that impairs the packets towards the receiver.
func pathCase(what string, rate float64, bad impair.Config) Case {
	bad.Delay = pathDelay
	return Case{
		Name: fmt.Sprintf("%s-%g", what, 100*rate),
		Title: fmt.Sprintf("64 KiB Writes, %s of %g %% of packets towards the receiver, RTT 1 "+
			"ms, MTU 1500", what, 100*rate),
		MTU: 1500, Metric: Gbps,
		Path: &relay.Config{AB: bad, BA: impair.Config{Delay: pathDelay}},
		Variants: overPath(65536, func(s *endpoint.Spec) {
			s.Warmup, s.Duration = 2*warmup, lossyDuration
		}),
	}
}

// Delay, loss and transfer of wanCase. A loss of 1 % keeps the congestion window at about 12 segments, on any host. So
// a transfer of 4 MiB takes about 4 s and recovers from about 30 losses; five rounds have 150.
const (
	wanDelay    = 10 * tick.Millisecond // one way
	wanLoss     = 0.01
	wanSize     = 256 << 10
	wanMessages = 16
)

// wanCase measures a whole transfer over a wide-area path, from its first byte to the acknowledgement of its last. Loss
// recovery and congestion control alone decide its time. Kernel sockets use CUBIC, as the engine does.
func wanCase() Case {
	return Case{
		Name: "wan-1",
		Title: "Transfer of 4 MiB, loss of 1 % of packets towards the receiver, RTT 20 ms, " +
			"CUBIC, MTU 1500",
		MTU: 1500, Metric: Gbps, Path: &relay.Config{AB: impair.Config{Loss: wanLoss,
			Delay: wanDelay}, BA: impair.Config{Delay: wanDelay}},
		Variants: overPath(wanSize, func(s *endpoint.Spec) {
			s.Iterations, s.Depth, s.Moderation = wanMessages, 8, 1
		}),
	}
}
