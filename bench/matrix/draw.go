package matrix

import (
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Sizes of a plot. Viewers draw an SVG with their own fonts, some of which are a fifth wider than the font that gonum
// measures. slack is the factor by which space for text is enlarged for them.
const (
	width  = 26 * vg.Centimeter
	height = 13 * vg.Centimeter
	border = 5 * vg.Millimeter
	slack  = 1.25
)

// palette has the colours of a plot's curves, in their order. They also differ in brightness, on a white background.
var palette = []color.Color{
	rgb(0x1f77b4), rgb(0xd62728), rgb(0x2ca02c), rgb(0xff7f0e), rgb(0x9467bd), rgb(0x8c564b),
	rgb(0x17becf), rgb(0xe377c2), rgb(0x5f5f5f), rgb(0xbcbd22), rgb(0x003f5c),
}

func rgb(v uint32) color.Color { return color.RGBA{uint8(v >> 16), uint8(v >> 8), uint8(v), 255} }

// axis is the horizontal or the vertical axis of a plot.
type axis struct {
	label string
	log   bool
	zero  bool                 // this logarithmic axis has a place for 0, apart from the other values
	most  float64              // the upper end; 0: the largest value
	at    []float64            // values of the ticks; nil: round values
	text  func(float64) string // returns the label of a tick

	floor float64 // smallest coordinate on a logarithmic axis, where 0 is drawn; set by measure
	top   float64 // upper end, set by measure
}

// measure sets floor and top to the range of the values.
func (a *axis) measure(values []float64) {
	least, most := math.Inf(1), 0.0
	zeros := false
	for _, v := range values {
		most = max(most, v)
		if v > 0 {
			least = min(least, v)
		} else {
			zeros = true
		}
	}
	a.top = most
	if a.most > 0 {
		a.top = a.most
	}
	if !a.log {
		return
	}
	if math.IsInf(least, 1) {
		least = 1
	}
	a.floor = least
	if a.zero && zeros {
		// so far below the smallest value that a reader does not mistake the floor for a small value
		a.floor = math.Pow(10, math.Ceil(math.Log10(least))-1.5)
	}
	a.top = max(a.top, 10*a.floor)
}

// place returns the coordinate at which v is drawn: v, but at least the floor of a logarithmic axis, which has no zero.
func (a *axis) place(v float64) float64 {
	if a.log {
		return max(v, a.floor)
	}
	return v
}

// apply sets up gonum's axis.
func (a *axis) apply(p *plot.Axis) {
	p.Label.Text = a.label
	at := a.at
	if at == nil {
		at = a.round()
	}
	var ticks plot.ConstantTicks
	for _, v := range at {
		ticks = append(ticks, plot.Tick{Value: a.place(v), Label: a.text(v)})
	}
	p.Tick.Marker = ticks
	if a.log {
		p.Scale = plot.LogScale{}
	}
	p.Label.TextStyle.Font.Size, p.Label.Padding, p.Tick.Label.Font.Size = 11, vg.Points(6), 10
	p.Min, p.Max = a.place(0), a.top
	for _, v := range a.at {
		p.Max = max(p.Max, a.place(v))
	}
	if a.log && a.at == nil {
		p.Max *= 1.1
	}
}

// round returns round values between the ends of the axis. On a logarithmic axis these are 1, 2 and 5 in each decade,
// or only the powers of ten if there are more than three decades.
func (a *axis) round() (list []float64) {
	if !a.log {
		for i := range 6 {
			list = append(list, a.top*float64(i)/5)
		}
		return list
	}
	if a.zero {
		list = append(list, 0)
	}
	from, to := math.Floor(math.Log10(a.floor)), math.Ceil(math.Log10(a.top))
	for e := from; e <= to; e++ {
		for _, m := range []float64{1, 2, 5} {
			v := m * math.Pow(10, e)
			if v >= a.floor*0.999 && v <= a.top*1.1 && (m == 1 || to-from <= 3) &&
				(!a.zero || v > 2*a.floor) {
				list = append(list, v)
			}
		}
	}
	return list
}

// plain, decimal and binary return the label of a tick: without a unit, with k and M, or with Ki and Mi.
func plain(v float64) string { return fmt.Sprintf("%.4g", v) }

func decimal(v float64) string { return scaled(v, 1e3, "k", "M") }

func binary(v float64) string { return scaled(v, 1<<10, "Ki", "Mi") }

// scaled returns v as text in the largest of the two units that v reaches, or without a unit.
func scaled(v, step float64, small, large string) string {
	switch {
	case v >= step*step:
		return fmt.Sprintf("%g %s", v/(step*step), large)
	case v >= step:
		return fmt.Sprintf("%g %s", v/step, small)
	}
	return plain(v)
}

// draw draws a figure with its legend beside it. It draws nothing and returns false if the figure has no curve.
func (f *figure) draw(c vg.Canvas) (bool, error) {
	if len(f.curves) == 0 {
		return false, nil
	}
	if len(f.curves) > len(palette) {
		return false, fmt.Errorf("%d curves, but only %d colours", len(f.curves),
			len(palette))
	}
	f.measure()
	p := plot.New()
	p.Title.Text, p.Title.Padding, p.Title.TextStyle.Font.Size = f.title, vg.Points(6), 13
	p.Add(plotter.NewGrid())
	legend := plot.NewLegend()
	legend.Top, legend.Left, legend.TextStyle.Font.Size, legend.Padding = true, true, 10,
		vg.Points(4)
	legend.ThumbnailWidth = vg.Points(28)
	for i, v := range f.curves {
		if err := f.add(p, &legend, i, &v); err != nil {
			return false, fmt.Errorf("%s: %w", v.name, err)
		}
	}
	f.x.apply(&p.X)
	f.y.apply(&p.Y)
	p.Y.Tick.Label.XAlign = -1.15 // leaves a gap between label and tick; at -1 the label ends at the tick

	all := draw.NewCanvas(c, width, height)
	all.SetColor(color.White)
	all.Fill(all.Rectangle.Path())
	all = draw.Crop(all, border, -border, border, -border)
	beside := legend.ThumbnailWidth + slack*(legend.Rectangle(all).Size().X-legend.ThumbnailWidth)
	legend.Draw(draw.Crop(all, all.Size().X-beside, 0, 0, -2*border))
	p.Draw(draw.Crop(all, 0, -beside-3*border, 0, 0))
	return true, nil
}

func (f *figure) measure() {
	xs, ys := append([]float64(nil), f.x.at...), append([]float64(nil), f.y.at...)
	for _, c := range f.curves {
		for i, v := range c.xy {
			xs, ys = append(xs, v.X), append(ys, v.Y)
			if c.lo != nil {
				ys = append(ys, v.Y-c.lo[i], v.Y+c.hi[i])
			}
		}
	}
	f.x.measure(xs)
	f.y.measure(ys)
}

// errorBars are the points of a curve with the spread at each.
type errorBars struct {
	plotter.XYs
	plotter.YErrors
}

// add adds c, the figure's curve of index n, to the plot and the legend.
func (f *figure) add(p *plot.Plot, legend *plot.Legend, n int, c *curve) error {
	var marks, joined plotter.XYs
	bars := errorBars{}
	for i, v := range c.xy {
		at := plotter.XY{X: f.x.place(v.X), Y: f.y.place(v.Y)}
		marks = append(marks, at)
		if v.X > 0 || !f.x.log { // the axis has no place for zero
			joined = append(joined, at)
		}
		if c.lo != nil {
			bars.XYs = append(bars.XYs, at)
			bars.YErrors = append(bars.YErrors,
				struct{ Low, High float64 }{at.Y - f.y.place(v.Y-c.lo[i]),
					f.y.place(v.Y+c.hi[i]) - at.Y})
		}
	}
	l, err := plotter.NewLine(joined)
	if err != nil {
		return err
	}
	l.Color, l.Dashes, l.Width = palette[n], plotutil.Dashes(n), vg.Points(1.5)
	p.Add(l)
	thumbs := []plot.Thumbnailer{l}
	if !f.steps {
		s, err := plotter.NewScatter(marks)
		if err != nil {
			return err
		}
		s.Color, s.Shape, s.Radius = palette[n], plotutil.Shape(n), vg.Points(3)
		p.Add(s)
		thumbs = append(thumbs, s)
	}
	if c.lo != nil {
		e, err := plotter.NewYErrorBars(bars)
		if err != nil {
			return err
		}
		e.Color = palette[n]
		p.Add(e)
	}
	legend.Add(c.name, thumbs...)
	return nil
}
