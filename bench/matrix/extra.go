package matrix

import (
	"fmt"

	"xwarp/bench/perf"
	"xwarp/engine"
)

// Extra returns cases that answer one question each and are not in the standard matrix.
func Extra() (all []Case) {
	for _, mtu := range mtus {
		all = append(all, offloadCase(mtu))
	}
	return all
}

// Names of the ways to send a frame that the offload cases compare with raw AF_XDP.
const (
	gsoWhole   = "segmentation offload"
	gsoPartial = "segmentation offload, checksums left to a device"
	ourGSO     = "xwarp, no markers, segmentation offload"
)

// offloadCase is raw frames that are sent one by one over AF_XDP, and in blocks that the kernel cuts. The receiver is
// the same. Without an offload of checksums the kernel computes them, which raw AF_XDP never does.
func offloadCase(mtu int) Case {
	return Case{
		Name: fmt.Sprintf("gso-mtu%d", mtu), Title: fmt.Sprintf("Frames through segmentation offload, MTU %d", mtu), MTU: mtu, Metric: Frames,
		Variants: []Variant{
			{Name: rawRing, Spec: raw(perf.Raw, mtu), Offloads: sameSums},
			{Name: gsoWhole, Spec: raw(perf.GSO, mtu), Offloads: sameSums},
			{Name: gsoPartial, Spec: raw(perf.GSO, mtu), Offloads: asTheyCome},
			{Name: ourBare, Spec: with(bw(perf.XDP, perf.Write, mega), noMarkers), Offloads: sameSums},
			{Name: ourGSO, Spec: with(bw(perf.XDP, perf.Write, mega), noMarkers, blocks), Offloads: sameSums},
		},
	}
}

func blocks(s *perf.Spec) { s.Transmit = engine.TransmitGSO }

func offloadTargets() (t []Target) {
	for _, mtu := range mtus {
		t = append(t, Target{
			Row:  fmt.Sprintf("Write 1 MiB, MTU %d, no markers, through segmentation offload against through AF_XDP", mtu),
			Case: fmt.Sprintf("gso-mtu%d", mtu), Of: ourGSO, To: ourBare, Metric: Frames,
		})
		for _, v := range []string{gsoWhole, gsoPartial} {
			t = append(t, Target{
				Row:  fmt.Sprintf("frames, MTU %d, %s against raw AF_XDP", mtu, v),
				Case: fmt.Sprintf("gso-mtu%d", mtu), Of: v, To: rawRing, Metric: Frames,
			})
		}
	}
	return t
}
