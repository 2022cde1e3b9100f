package matrix

import (
	"fmt"
	"slices"
)

// Target is a ratio that is wanted.
type Target struct {
	Row          string // what a reader calls it
	Case         string
	Of, To       string // variants: Of divided by To
	Metric       Metric
	Want, Beyond float64 // 0: none, only shown
	Small        bool    // smaller is better
}

// Ratio is a Target, measured.
type Ratio struct {
	Row    string  `json:"row"`
	Case   string  `json:"case"`
	Of     string  `json:"of"`
	To     string  `json:"to"`
	Metric Metric  `json:"metric"`
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	Best   float64 `json:"best"` // best round against best round
	Want   float64 `json:"want,omitempty"`
	Beyond float64 `json:"beyond,omitempty"`
	Small  bool    `json:"smaller_is_better,omitempty"`
}

// Targets returns every ratio that is reported.
func Targets() []Target {
	var t []Target
	for _, mtu := range mtus {
		name := fmt.Sprintf("write-mtu%d", mtu)
		row := func(what string) string { return fmt.Sprintf("Write 1 MiB, MTU %d, %s", mtu, what) }
		t = append(t,
			rawTarget(name, row("no markers, frames against raw AF_XDP"), ourBare),
			rawTarget(name, row("markers, frames against raw AF_XDP"), ours),
			rawTarget(name, row("no markers, blocks, frames against raw AF_XDP"), ourGSO),
			rawTarget(name, row("markers, blocks, frames against raw AF_XDP"), ourMarked),
			Target{
				Row:  row("no markers, frames against raw AF_XDP that copies payload at both ends"),
				Case: name, Of: ourBare, To: rawCopy, Metric: Frames},
			Target{Row: row("no markers, octets of messages against octets of raw packets"),
				Case: name, Of: ourBare, To: rawRing, Metric: Gbps},
			kernelTarget(name, row("against kernel TCP without TSO/GSO/GRO"), ourBare, kernelCut,
				mtu),
			kernelTarget(name, row("against kernel TCP without any offload"), ourBare, kernelSum,
				mtu),
			kernelTarget(name, row("blocks, against kernel TCP without TSO/GSO/GRO"), ourGSO,
				kernelCut, mtu),
			kernelTarget(name, row("blocks, against kernel TCP without any offload"), ourGSO,
				kernelSum, mtu),
			Target{Row: row("against MPA over kernel TCP without offloads"), Case: name,
				Of: ourBare, To: layered, Metric: Gbps, Want: 1.2, Beyond: 1.5},
			Target{Row: row("against kernel TCP as it comes"), Case: name, Of: ourBare,
				To: kernelAll, Metric: Gbps, Beyond: map[int]float64{9000: 1}[mtu]},
			Target{Row: row("against the bare work on one core"), Case: name, Of: ourBare,
				To: workHot, Metric: Frames},
		)
	}
	t = append(t,
		Target{Row: "Write 1 MiB, MTU 1500, CRC on against off", Case: "write-mtu1500", Of: ours,
			To: ourNoCRC, Metric: Gbps},
		Target{Row: "Write 1 MiB, MTU 1500, IPv6 against IPv4", Case: "write-mtu1500", Of: ourV6,
			To: ours, Metric: Gbps},
		Target{Row: "raw AF_XDP, asavie/xdp against package ring", Case: "write-mtu1500",
			Of: rawAsavie, To: rawRing, Metric: Frames},
		Target{Row: "64 B Write ping-pong p50 against kernel TCP, blocking", Case: "latency",
			Of: "Write", To: "kernel TCP, blocking", Metric: P50, Want: 0.5, Beyond: 0.25,
			Small: true},
		Target{Row: "64 B Write ping-pong p50 against kernel TCP, spinning", Case: "latency",
			Of: "Write", To: "kernel TCP, spinning", Metric: P50, Want: 0.5, Beyond: 0.25,
			Small: true},
		Target{Row: "64 B Write ping-pong p50 against raw AF_XDP", Case: "latency", Of: "Write",
			To: rawRing, Metric: P50, Want: 1.5, Beyond: 1.2, Small: true},
		Target{Row: "64 B Write ping-pong p99 against kernel TCP, spinning", Case: "latency",
			Of: "Write", To: "kernel TCP, spinning", Metric: P99, Small: true},
		Target{Row: "64 B Writes per second, packed, against kernel TCP", Case: "size-64", Of: ours,
			To: kernelAll, Metric: Messages, Want: 3, Beyond: 10},
		Target{Row: "64 B Writes per second, packed, against kernel TCP with TCP_NODELAY",
			Case: "size-64", Of: ours, To: "kernel TCP, TCP_NODELAY", Metric: Messages, Want: 3,
			Beyond: 10},
		Target{Row: "64 B Writes per second, packed against not packed", Case: "size-64", Of: ours,
			To: "xwarp, no packing", Metric: Messages},
		Target{Row: "connections per second against kernel TCP", Case: "connect", Of: ours,
			To: kernelAll, Metric: Messages},
		Target{Row: "16 connections against one", Case: "crowd", Of: crowdName(16),
			To: crowdName(1), Metric: Gbps},
		Target{Row: "256 connections against one", Case: "crowd", Of: crowdName(256),
			To: crowdName(1), Metric: Gbps, Want: 0.85, Beyond: 0.95},
		Target{Row: "4096 connections against one", Case: "crowd", Of: crowdName(4096),
			To: crowdName(1), Metric: Gbps, Want: 0.70, Beyond: 0.85},
	)
	for _, v := range []string{"Read", "Send", "Write+Send", "Write, both directions"} {
		t = append(t, Target{Row: v + " against Write, 1 MiB", Case: "verbs", Of: v, To: "Write",
			Metric: Gbps})
	}
	return slices.Concat(t, pathTargets(), optionTargets(), offloadTargets())
}

// rawTarget is frames of a variant against raw AF_XDP, the limit of the machine.
func rawTarget(name, row, of string) Target {
	t := Target{Row: row, Case: name, Of: of, To: rawRing, Metric: Frames, Want: 0.85, Beyond: 0.95}
	if of == ours || of == ourMarked {
		t.Want, t.Beyond = 0.80, 0.90
	}
	return t
}

// kernelTarget is a variant against the kernel's TCP, with targets where they were set.
func kernelTarget(name, row, of, to string, mtu int) Target {
	t := Target{Row: row, Case: name, Of: of, To: to, Metric: Gbps}
	switch {
	case to == kernelCut && mtu == 9000:
		t.Want, t.Beyond = 0.80, 1
	case to == kernelSum && mtu == 1500:
		t.Want, t.Beyond = 1, 1.2
	}
	return t
}

// optionTargets are shown when the cases beyond the standard ones are measured.
func optionTargets() (t []Target) {
	for _, mtu := range mtus[1:] {
		name := fmt.Sprintf("options-mtu%d", mtu)
		row := func(what string) string { return fmt.Sprintf("Write 1 MiB, MTU %d, %s", mtu, what) }
		t = append(t,
			Target{Row: row("CRC on against off"), Case: name, Of: ours, To: ourNoCRC,
				Metric: Gbps},
			Target{Row: row("markers on against off"), Case: name, Of: ours, To: ourBare,
				Metric: Gbps},
			Target{Row: row("IPv6 against IPv4"), Case: name, Of: ourV6, To: ours, Metric: Gbps},
		)
	}
	return t
}

func pathTargets() (t []Target) {
	for _, l := range slices.Concat(losses, moreLosses) {
		name := fmt.Sprintf("loss-%g", 100*l)
		g := Target{Row: fmt.Sprintf("loss %g %%, goodput against kernel TCP", 100*l), Case: name,
			Of: ours, To: kernelSum, Metric: Gbps}
		h := Target{Row: fmt.Sprintf("loss %g %%, octets held out of order against kernel TCP",
			100*l), Case: name, Of: ours, To: kernelSum, Metric: Held, Small: true}
		if l == 0.01 {
			g.Want, g.Beyond, h.Want, h.Beyond = 1, 1.2, 0.1, 0.02
		}
		t = append(t, g)
		if l > 0 {
			t = append(t, h)
		}
	}
	for _, r := range slices.Concat(reorders, moreReorders) {
		name := fmt.Sprintf("reorder-%g", 100*r)
		t = append(t, Target{Row: fmt.Sprintf("reordering %g %%, goodput against kernel TCP",
			100*r), Case: name, Of: ours, To: kernelSum, Metric: Gbps})
	}
	for _, of := range []string{ours, ourBare} {
		t = append(t, Target{Row: "loss 1 %, RTT 20 ms, goodput of " + of + " against kernel TCP",
			Case: "wan-1", Of: of, To: kernelSum, Metric: Gbps, Want: 1, Beyond: 1.2})
	}
	return t
}

// find returns the values of a variant, nil when it was not measured.
func (r *Results) find(name, variant string, m Metric) []float64 {
	for i := range r.Cases {
		if r.Cases[i].Name != name {
			continue
		}
		for k := range r.Cases[i].Variants {
			if v := &r.Cases[i].Variants[k]; v.Name == variant {
				return v.Values[m]
			}
		}
	}
	return nil
}

// ratios computes every target whose variants were measured.
func ratios(res *Results) (out []Ratio) {
	for _, t := range Targets() {
		of := res.find(t.Case, t.Of, t.Metric)
		to := res.find(t.Case, t.To, t.Metric)
		if of == nil || to == nil {
			continue
		}
		r := Ratio{Row: t.Row, Case: t.Case, Of: t.Of, To: t.To, Metric: t.Metric, Want: t.Want,
			Beyond: t.Beyond, Small: t.Small}
		r.Median, r.Low, r.High = spread(quotient(of, to))
		r.Best = best(of, to, t.Small)
		out = append(out, r)
	}
	return out
}

// Verdict says how a ratio stands to its target.
func (r *Ratio) Verdict() string {
	reached := func(x float64) bool { return r.Small && r.Median <= x || !r.Small && r.Median >= x }
	switch {
	case r.Median == missing:
		return "not measured"
	case r.Beyond > 0 && reached(r.Beyond):
		return "beyond"
	case r.Want == 0:
		return ""
	case reached(r.Want):
		return "reached"
	}
	return "missed"
}
