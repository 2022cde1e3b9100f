package matrix

import (
	"fmt"

	"xwarp/bench/endpoint"
)

// Losses, reorderings and message sizes of the extra cases.
var (
	moreLosses   = []float64{0.005, 0.02}
	moreReorders = []float64{0.01, 0.05, 0.1}
	lowRates     = []int{64, 1024, 4096}
)

// Extra returns the cases that the standard matrix has no time for.
func Extra() (all []Case) {
	for _, mtu := range mtus {
		all = append(all, offloadCase(mtu))
	}
	all = append(all, espCase(1500), espCase(9000))
	for _, mtu := range mtus[1:] {
		all = append(all, optionCase(mtu), verbCase(fmt.Sprintf("verbs-mtu%d", mtu),
			fmt.Sprintf("The verbs, 1 MiB, MTU %d", mtu), mtu, endpoint.XDP))
	}
	all = append(all, verbCase("verbs-layered", "The verbs, 1 MiB, MTU 1500, over kernel TCP", 1500,
		endpoint.Layered))
	for _, n := range lowRates {
		all = append(all, rateCase(n))
	}
	all = append(all, longLatencyCase(4096))
	return append(all, pathCases(moreLosses, moreReorders)...)
}

// optionCase measures the cost of markers, of the CRC and of IPv6 with frames above 1500 bytes.
func optionCase(mtu int) Case {
	xdp := writes(endpoint.XDP, mebibyte)
	return Case{
		Name:  fmt.Sprintf("options-mtu%d", mtu),
		Title: fmt.Sprintf("RDMA Write of 1 MiB with options, MTU %d", mtu), MTU: mtu, Metric: Gbps,
		Variants: []Variant{
			variant(ours, xdp),
			variant(ourBare, xdp, noMarkers),
			variant(ourNoCRC, xdp, noCRC),
			variant(ourV6, xdp).overIPv6(),
		},
	}
}

// espCase measures the cost of encryption by IPsec ESP.
func espCase(mtu int) Case {
	xdp := writes(endpoint.XDP, mebibyte)
	return Case{
		Name:  fmt.Sprintf("esp-mtu%d", mtu),
		Title: fmt.Sprintf("RDMA Write of 1 MiB by IPsec ESP, MTU %d", mtu), MTU: mtu, Metric: Gbps,
		More: extraRounds,
		Variants: []Variant{
			variant(ourBare, xdp, noMarkers),
			variant(ourESP, xdp, noMarkers, withESP128),
			variant(ourESP256, xdp, noMarkers, withESP256),
		},
	}
}

// rateCase measures the message rate of each verb with messages of n bytes.
func rateCase(n int) Case {
	return Case{
		Name:  fmt.Sprintf("rate-%d", n),
		Title: fmt.Sprintf("Messages of %d bytes by verb, MTU 1500", n), MTU: 1500,
		Metric: Messages,
		Variants: append(byVerb(endpoint.XDP, n),
			variant("Send, both directions", bw(endpoint.XDP, endpoint.Send, n), bothWays)),
	}
}

// longLatencyCase measures a ping-pong of n bytes, more than those of the standard case.
func longLatencyCase(n int) Case {
	return Case{
		Name:  fmt.Sprintf("latency-%d", n),
		Title: fmt.Sprintf(latencyTitle, n), MTU: 1500, Metric: P50,
		Variants: []Variant{
			variant("Write", lat(endpoint.XDP, endpoint.Write, n)),
			variant("Send", lat(endpoint.XDP, endpoint.Send, n)),
			variant("Read", lat(endpoint.XDP, endpoint.Read, n)),
			variant("kernel TCP, spinning", lat(endpoint.TCP, endpoint.Write, n)).on(asTheyCome),
		},
	}
}

// offloadCase compares two ways to send raw frames and Writes: one by one over AF_XDP, and in blocks that the kernel
// segments. The receiver is the same. Without checksum offload the kernel computes the checksums of blocks; it never
// computes those of frames over AF_XDP.
func offloadCase(mtu int) Case {
	xdp, tcp := writes(endpoint.XDP, mebibyte), writes(endpoint.TCP, mebibyte)
	return Case{
		Name:  fmt.Sprintf("gso-mtu%d", mtu),
		Title: fmt.Sprintf("Frames through segmentation offload, MTU %d", mtu), MTU: mtu,
		Metric: Frames,
		Variants: []Variant{
			variant(rawRing, raw(endpoint.Raw, mtu)).on(noOffloads),
			variant("segmentation offload", raw(endpoint.GSO, mtu)).on(noOffloads),
			variant("segmentation offload, checksums left to a device",
				raw(endpoint.GSO, mtu)).on(asTheyCome),
			variant(ourBare, xdp, noMarkers).on(noOffloads),
			variant(ourGSO, xdp, noMarkers, withGSO).on(noOffloads),
			variant(ourMarked, xdp, withGSO).on(noOffloads),
			variant(kernelSum, tcp).on(noOffloads),
			variant(kernelCut, tcp).on(sameFrames),
		},
	}
}
