package matrix

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg/vgsvg"
)

// curve is one line of a plot.
type curve struct {
	name string
	xy   plotter.XYs
	lo   []float64 // distance from each point down to the smallest value; nil: no error bars
	hi   []float64 // distance from each point up to the largest value
}

// figure is one plot.
type figure struct {
	file, title string
	x, y        axis
	steps       bool // the points of curves are not marked, because there are many
	curves      []curve
}

// figures returns all plots; those without measurements have no curves.
func (res *Results) figures() []figure {
	loss := axis{label: "packets lost, %", log: true, zero: true,
		at: percent(slices.Concat(losses, moreLosses)), text: plain}
	gbps := axis{label: "Gbit/s", log: true, text: plain}
	return []figure{
		{
			file: "bandwidth.svg", title: "Bandwidth by message size, MTU 1500 (higher is better)",
			curves: res.bySize(),
			x:      axis{label: "bytes of a message", log: true, at: floats(sizes), text: binary},
			y:      gbps,
		},
		{
			file: "mtu.svg", title: "RDMA Write of 1 MiB by MTU (higher is better)",
			curves: res.byMTU(),
			x:      axis{label: "MTU, bytes", at: floats(mtus), text: plain},
			y:      gbps,
		},
		{
			file: "loss.svg", title: "Goodput by loss, RTT 1 ms, MTU 1500 (higher is better)",
			curves: res.byLoss(Gbps),
			x:      loss, y: gbps,
		},
		{
			file: "held.svg", title: "Bytes held out of order, most at a time (lower is better)",
			curves: res.byLoss(Held),
			x:      loss, y: axis{label: "bytes", log: true, zero: true, text: decimal},
		},
		{
			file: "latency.svg", title: "Latency of 64 bytes, one way (Read: the whole operation)",
			curves: res.latencies(), steps: true,
			x: axis{label: "microseconds", log: true, text: plain},
			y: axis{label: "fraction of messages", most: 1, text: plain},
		},
	}
}

// Plots writes every plot for which there are measurements into dir, as an SVG file.
func (res *Results) Plots(dir string) error {
	var errs []error
	for _, f := range res.figures() {
		c := vgsvg.New(width, height)
		drawn, err := f.draw(c)
		var svg bytes.Buffer
		if err == nil && drawn {
			_, err = c.WriteTo(&svg)
		}
		if err == nil && drawn {
			err = os.WriteFile(filepath.Join(dir, f.file), svg.Bytes(), 0o666)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f.file, err))
		}
	}
	return errors.Join(errs...)
}

// lines returns a curve for each variant that was measured. Its point at x is the median of metric m in the case
// name(x).
func (res *Results) lines(variants []string, m Metric, xs []float64, name func(x float64) string) (
	all []curve) {
	for _, v := range variants {
		c := curve{name: v}
		for _, x := range xs {
			mid, lo, hi := spread(res.find(name(x), v, m))
			if mid == missing {
				continue
			}
			c.xy = append(c.xy, plotter.XY{X: x, Y: mid})
			c.lo, c.hi = append(c.lo, mid-lo), append(c.hi, hi-mid)
		}
		if len(c.xy) > 0 {
			all = append(all, c)
		}
	}
	return all
}

func (res *Results) bySize() []curve {
	return res.lines([]string{ourAuto, ours, ourMarked, kernelAll, kernelSum}, Gbps, floats(sizes),
		func(x float64) string { return fmt.Sprintf("size-%d", int(x)) })
}

func (res *Results) byMTU() []curve {
	return res.lines([]string{ourAuto, ours, ourMarked, rawRing, kernelAll, kernelCut,
		kernelSum, layered}, Gbps, floats(mtus),
		func(x float64) string { return fmt.Sprintf("write-mtu%d", int(x)) })
}

func (res *Results) byLoss(m Metric) []curve {
	return res.lines([]string{ours, ourBare, ourCut, kernelSum}, m,
		percent(slices.Sorted(slices.Values(slices.Concat(losses, moreLosses)))),
		func(x float64) string { return fmt.Sprintf("loss-%g", x) })
}

func (res *Results) latencies() (all []curve) {
	for _, v := range res.variants("latency") {
		c := curve{name: v.Name}
		for _, p := range v.CDF {
			if p[0] > 0 {
				c.xy = append(c.xy, plotter.XY{X: p[0], Y: p[1]})
			}
		}
		if len(c.xy) > 0 {
			all = append(all, c)
		}
	}
	return all
}

func floats(list []int) (f []float64) {
	for _, n := range list {
		f = append(f, float64(n))
	}
	return f
}

func percent(list []float64) (p []float64) {
	for _, x := range list {
		p = append(p, 100*x)
	}
	return p
}
