package matrix

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// curve is one line of a plot.
type curve struct {
	name string
	xy   plotter.XYs
	lo   []float64 // smallest and largest at each point; nil without
	hi   []float64
}

// Plots writes every plot for which there are measurements, as SVG files into dir.
func (res *Results) Plots(dir string) error {
	return errors.Join(
		draw(filepath.Join(dir, "bandwidth.svg"), "Bandwidth by message size, MTU 1500", "octets of a message", "Gbit/s", true, false, res.bySize()),
		draw(filepath.Join(dir, "loss.svg"), "Goodput by loss, RTT 1 ms, MTU 1500", "packets lost, %", "Gbit/s", false, false, res.byLoss(Gbps)),
		draw(filepath.Join(dir, "held.svg"), "Octets held out of order, most at a time", "packets lost, %", "octets", false, false, res.byLoss(Held)),
		draw(filepath.Join(dir, "latency.svg"), "Latency of 64 octets, one way", "microseconds", "fraction of messages", true, false, res.latencies()),
	)
}

// line collects one variant's values over cases.
func (res *Results) line(variant string, m Metric, xs []float64, name func(x float64) string) curve {
	c := curve{name: variant}
	for _, x := range xs {
		mid, lo, hi := spread(res.find(name(x), variant, m))
		if mid == missing {
			continue
		}
		c.xy = append(c.xy, plotter.XY{X: x, Y: mid})
		c.lo, c.hi = append(c.lo, mid-lo), append(c.hi, hi-mid)
	}
	return c
}

func (res *Results) bySize() (all []curve) {
	var xs []float64
	for _, n := range sizes {
		xs = append(xs, float64(n))
	}
	for _, v := range []string{ours, kernelAll, kernelSum} {
		all = append(all, res.line(v, Gbps, xs, func(x float64) string { return fmt.Sprintf("size-%d", int(x)) }))
	}
	return all
}

func (res *Results) byLoss(m Metric) (all []curve) {
	var xs []float64
	for _, l := range slices.Sorted(slices.Values(slices.Concat(losses, moreLosses))) {
		xs = append(xs, 100*l)
	}
	for _, v := range []string{ours, ourBare, kernelSum} {
		all = append(all, res.line(v, m, xs, func(x float64) string { return fmt.Sprintf("loss-%g", x) }))
	}
	return all
}

func (res *Results) latencies() (all []curve) {
	for i := range res.Cases {
		if res.Cases[i].Name != "latency" {
			continue
		}
		for k := range res.Cases[i].Variants {
			v := &res.Cases[i].Variants[k]
			c := curve{name: v.Name}
			for _, p := range v.CDF {
				if p[0] > 0 {
					c.xy = append(c.xy, plotter.XY{X: p[0], Y: p[1]})
				}
			}
			all = append(all, c)
		}
	}
	return all
}

// errorBars are a curve's spreads.
type errorBars struct {
	plotter.XYs
	plotter.YErrors
}

// draw writes one plot; without any curve it writes none.
func draw(file, title, x, y string, logX, logY bool, curves []curve) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Add(plotter.NewGrid())
	p.Y.Min, p.X.Min = 0, math.Inf(1)
	if logX {
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	if logY {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	p.Legend.Top, p.Legend.Left = true, true
	n := 0
	for _, c := range curves {
		if len(c.xy) < 2 {
			continue
		}
		l, pts, err := plotter.NewLinePoints(c.xy)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", file, c.name, err)
		}
		l.Color, l.Dashes, l.Width = plotutil.Color(n), plotutil.Dashes(n), vg.Points(1.5)
		pts.Color, pts.Shape = plotutil.Color(n), plotutil.Shape(n)
		p.Add(l, pts)
		p.Legend.Add(c.name, l, pts)
		if c.lo != nil {
			e := errorBars{XYs: c.xy}
			for i := range c.lo {
				e.YErrors = append(e.YErrors, struct{ Low, High float64 }{c.lo[i], c.hi[i]})
			}
			bars, err := plotter.NewYErrorBars(e)
			if err != nil {
				return fmt.Errorf("%s: %s: %w", file, c.name, err)
			}
			bars.Color = plotutil.Color(n)
			p.Add(bars)
		}
		n++
	}
	if n == 0 {
		return nil
	}
	p.Y.Max *= 1.3 // room for the legend
	return p.Save(20*vg.Centimeter, 13*vg.Centimeter, file)
}
