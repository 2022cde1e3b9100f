package matrix

import (
	"fmt"

	"xwarp/bench/endpoint"
	"xwarp/bench/relay/impair"
	"xwarp/engine"
)

// Sizes, losses and reorderings between those of the standard matrix.
var (
	moreLosses   = []float64{0.005, 0.02}
	moreReorders = []float64{0.01, 0.1}
	lowRates     = []int{64, 1024, 4096}
)

// Extra returns what the standard matrix has no time for.
func Extra() (all []Case) {
	for _, mtu := range mtus {
		all = append(all, offloadCase(mtu))
	}
	for _, mtu := range mtus[1:] {
		all = append(all, optionCase(mtu), verbsOf(fmt.Sprintf("verbs-mtu%d", mtu),
			fmt.Sprintf("The verbs, 1 MiB, MTU %d", mtu), mtu, endpoint.XDP))
	}
	all = append(all, verbsOf("verbs-layered", "The verbs, 1 MiB, MTU 1500, over kernel TCP", 1500,
		endpoint.Layered))
	for _, n := range lowRates {
		all = append(all, rateCase(n))
	}
	all = append(all, latencyOf(4096))
	for _, l := range moreLosses {
		all = append(all, pathCase("loss", l, impair.Config{Loss: l, Delay: pathDelay}))
	}
	for _, r := range moreReorders {
		all = append(all, pathCase("reorder", r, impair.Config{Reorder: r, Delay: pathDelay}))
	}
	return all
}

// optionCase is what markers, CRC and the address family cost with long frames.
func optionCase(mtu int) Case {
	write := func(change ...func(*endpoint.Spec)) endpoint.Spec {
		return with(bw(endpoint.XDP, endpoint.Write, mega), change...)
	}
	return Case{
		Name:  fmt.Sprintf("options-mtu%d", mtu),
		Title: fmt.Sprintf("RDMA Write of 1 MiB with options, MTU %d", mtu), MTU: mtu, Metric: Gbps,
		Variants: []Variant{
			{Name: ours, Spec: write()},
			{Name: ourBare, Spec: write(noMarkers)},
			{Name: ourNoCRC, Spec: write(noCRC)},
			{Name: ourV6, Spec: write(), IPv6: true},
		},
	}
}

// rateCase is small messages by the other verbs.
func rateCase(n int) Case {
	return Case{
		Name:  fmt.Sprintf("rate-%d", n),
		Title: fmt.Sprintf("Messages of %d octets by verb, MTU 1500", n), MTU: 1500,
		Metric: Messages,
		Variants: []Variant{
			{Name: "Write", Spec: bw(endpoint.XDP, endpoint.Write, n)},
			{Name: "Read", Spec: bw(endpoint.XDP, endpoint.Read, n)},
			{Name: "Send", Spec: bw(endpoint.XDP, endpoint.Send, n)},
			{Name: "Write+Send", Spec: bw(endpoint.XDP, endpoint.WriteSend, n)},
			{Name: "Send, both directions", Spec: with(bw(endpoint.XDP, endpoint.Send, n),
				bothWays)},
		},
	}
}

// latencyOf is a ping-pong of longer messages.
func latencyOf(n int) Case {
	lat := func(p endpoint.Peer, v endpoint.Verb) endpoint.Spec {
		return timed(endpoint.Spec{Peer: p, Verb: v, Mode: endpoint.Latency, Size: n})
	}
	return Case{
		Name:  fmt.Sprintf("latency-%d", n),
		Title: fmt.Sprintf("Ping-pong of %d octets, one way (Read: the whole operation)", n),
		MTU:   1500, Metric: P50,
		Variants: []Variant{
			{Name: "Write", Spec: lat(endpoint.XDP, endpoint.Write)},
			{Name: "Send", Spec: lat(endpoint.XDP, endpoint.Send)},
			{Name: "Read", Spec: lat(endpoint.XDP, endpoint.Read)},
			{Name: "kernel TCP, spinning", Spec: lat(endpoint.TCP, endpoint.Write),
				Offloads: asTheyCome},
		},
	}
}

// Names of the ways to send a frame that the offload cases compare with raw AF_XDP.
const (
	gsoWhole   = "segmentation offload"
	gsoPartial = "segmentation offload, checksums left to a device"
	ourGSO     = "xwarp, no markers, segmentation offload"
	ourMarked  = "xwarp, segmentation offload"
	ourLive    = "xwarp, XDP live frames"
)

// offloadCase is raw frames and whole Writes that are sent one by one over AF_XDP, and in blocks that the
// kernel cuts. The receiver is the same. Without an offload of checksums the kernel computes them, which raw
// AF_XDP never does.
func offloadCase(mtu int) Case {
	return Case{
		Name:  fmt.Sprintf("gso-mtu%d", mtu),
		Title: fmt.Sprintf("Frames through segmentation offload, MTU %d", mtu), MTU: mtu,
		Metric: Frames,
		Variants: []Variant{
			{Name: rawRing, Spec: raw(endpoint.Raw, mtu), Offloads: sameSums},
			{Name: gsoWhole, Spec: raw(endpoint.GSO, mtu), Offloads: sameSums},
			{Name: gsoPartial, Spec: raw(endpoint.GSO, mtu), Offloads: asTheyCome},
			{Name: ourBare, Spec: with(bw(endpoint.XDP, endpoint.Write, mega), noMarkers),
				Offloads: sameSums},
			{Name: ourGSO, Spec: with(bw(endpoint.XDP, endpoint.Write, mega), noMarkers, blocks),
				Offloads: sameSums},
			{Name: ourMarked, Spec: with(bw(endpoint.XDP, endpoint.Write, mega), blocks),
				Offloads: sameSums},
			{Name: kernelSum, Spec: bw(endpoint.TCP, endpoint.Write, mega), Offloads: sameSums},
			{Name: kernelCut, Spec: bw(endpoint.TCP, endpoint.Write, mega), Offloads: sameFrames},
		},
	}
}

func blocks(s *endpoint.Spec) { s.Transmit = engine.TransmitGSO }
func live(s *endpoint.Spec)   { s.Transmit = engine.TransmitLive }
