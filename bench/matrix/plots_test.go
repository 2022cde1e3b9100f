package matrix

import (
	"bytes"
	"flag"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/recorder"
)

var update = flag.Bool("update", false, "redraw the plots of bench/results")

// committed returns the results in bench/results by their folder, one for each model of processor.
func committed(t *testing.T) map[string]*Results {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join("../results", "*", FileJSON))
	if len(files) == 0 {
		t.Fatal("there are no results")
	}
	all := map[string]*Results{}
	for _, f := range files {
		res, err := Load(f)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Dir(f)] = res
	}
	return all
}

// TestCommittedPlots checks that the committed results are in the folder of their processor, and that the plots there
// are those that the results give.
func TestCommittedPlots(t *testing.T) {
	for dir, res := range committed(t) {
		if want := res.ModelDir("../results"); dir != want {
			t.Errorf("%s has results of %q, which belong in %s", dir, res.Env.CPU, want)
		}
		to := t.TempDir()
		if *update {
			to = dir
		}
		if err := res.Plots(to); err != nil {
			t.Fatal(err)
		}
		for _, f := range res.figures() {
			want, err := os.ReadFile(filepath.Join(to, f.file))
			if err != nil {
				t.Errorf("%s is not drawn: %v", f.file, err)
			}
			if have, err := os.ReadFile(filepath.Join(dir, f.file)); err != nil ||
				!bytes.Equal(have, want) {
				t.Errorf("%s/%s is not what %s gives: go test ./bench/matrix -run CommittedPlots "+
					"-update (%v)", dir, f.file, FileJSON, err)
			}
		}
		files, _ := filepath.Glob(filepath.Join(dir, "*.svg"))
		if len(files) != len(res.figures()) {
			t.Errorf("there are %v", files)
		}
	}
}

// picture has the texts of a drawn figure with their positions, and the colours and the extent of its curves.
type picture struct {
	end     vg.Length // the right end of the curves
	strings []written
	colours map[color.Color]bool // colours of the curves
}

type written struct {
	text     string
	from, to vg.Length // horizontal extent, enlarged by slack because viewers have other fonts
	y, size  vg.Length
}

// look draws a figure and returns what it drew. A figure draws its legend first, so the lines after the legend's last
// name belong to the curves.
func look(t *testing.T, f figure) picture {
	t.Helper()
	var c recorder.Canvas
	if drawn, err := f.draw(&c); err != nil || !drawn {
		t.Fatalf("%s: drawn %v, %v", f.file, drawn, err)
	}
	p := picture{colours: map[color.Color]bool{}}
	legend, turned := 0, 0
	for i, a := range c.Actions {
		switch a := a.(type) {
		case *recorder.Push:
			turned++
		case *recorder.Pop:
			turned--
		case *recorder.FillString:
			if turned > 0 {
				continue // the label of the vertical axis
			}
			face := plot.DefaultTextHandler.(text.Plain).Fonts.Lookup(a.Font, a.Size)
			w := face.Width(a.String)
			p.strings = append(p.strings, written{a.String, a.Point.X, a.Point.X + w*slack,
				a.Point.Y, a.Size})
			if slices.ContainsFunc(f.curves, func(c curve) bool { return c.name == a.String }) {
				legend = i
			}
		}
	}
	var now color.Color
	for _, a := range c.Actions[legend:] {
		switch a := a.(type) {
		case *recorder.SetColor:
			now = a.Color
		case *recorder.Stroke:
			if !slices.Contains(palette, now) {
				continue
			}
			p.colours[now] = true
			for _, s := range a.Path {
				p.end = max(p.end, s.Pos.X)
			}
		}
	}
	return p
}

// full returns results with two rounds of every variant of every case.
func full() *Results {
	res := &Results{}
	for i, c := range append(Standard(), Extra()...) {
		r := CaseResult{Name: c.Name}
		for k, v := range c.Variants {
			x := VariantResult{Name: v.Name, Values: map[Metric][]float64{}}
			y := float64(1+i%7) * float64(1+k)
			x.Values[Gbps], x.Values[Held] = []float64{y, 1.5 * y}, []float64{0, 1e5 * float64(k)}
			x.CDF = [][2]float64{{y, 0.01}, {2 * y, 0.5}, {9000 * y, 1}}
			r.Variants = append(r.Variants, x)
		}
		res.Cases = append(res.Cases, r)
	}
	return res
}

// TestFigures checks that each curve has its own colour, all text is inside the picture without overlap, and the legend
// is beside the curves.
func TestFigures(t *testing.T) {
	figures := full().figures()
	for _, res := range committed(t) {
		figures = append(figures, res.figures()...)
	}
	for _, f := range figures {
		p := look(t, f)
		if len(p.colours) != len(f.curves) {
			t.Errorf("%s: %d colours for %d curves", f.file, len(p.colours), len(f.curves))
		}
		legend := 0
		for i, s := range p.strings {
			if s.from < 0 || s.to > width || s.y < 0 || s.y+s.size > height {
				t.Errorf("%s: %q from %v to %v at %v is not within %v x %v", f.file, s.text, s.from,
					s.to, s.y, width, height)
			}
			if slices.ContainsFunc(f.curves, func(c curve) bool { return c.name == s.text }) {
				legend++
				if s.from-28 < p.end {
					t.Errorf("%s: %q of the legend at %v, curves as far as %v", f.file, s.text,
						s.from, p.end)
				}
			}
			for _, o := range p.strings[:i] {
				if max(s.y, o.y)-min(s.y, o.y) < 9 && s.from < o.to && o.from < s.to {
					t.Errorf("%s: %q lies over %q", f.file, s.text, o.text)
				}
			}
		}
		if legend != len(f.curves) {
			t.Errorf("%s: %d curves, %d names", f.file, len(f.curves), legend)
		}
	}
	many := figure{curves: make([]curve, len(palette)+1)}
	if _, err := many.draw(&recorder.Canvas{}); err == nil {
		t.Error("one colour is enough for two curves")
	}
}

// TestWaysToSend checks that the plots have a curve for each way to send segments: chosen automatically, one by one,
// and by segmentation offload.
func TestWaysToSend(t *testing.T) {
	res := full()
	for _, curves := range [][]curve{res.bySize(), res.byMTU()} {
		for _, way := range []string{ourAuto, ours, ourMarked} {
			if !slices.ContainsFunc(curves, func(c curve) bool { return c.name == way }) {
				t.Errorf("no curve %q in %+v", way, curves)
			}
		}
	}
}

// TestAxisOfLoss checks that each factor of ten has the same length on the axis, and that 0 is apart from the other
// values.
func TestAxisOfLoss(t *testing.T) {
	f := full().figures()[2]
	look(t, f)
	a := f.x
	a.measure(percent(losses))
	at := func(v float64) float64 { return math.Log10(a.place(v)) }
	if d := (at(1) - at(0.1)) - (at(10) - at(1)); !a.log || math.Abs(d) > 1e-9 ||
		at(0.1)-at(0) < 0.2 {
		t.Errorf("log %v; 0 at %v, 0.1 at %v, 1 at %v, 10 at %v", a.log, at(0), at(0.1), at(1),
			at(10))
	}
}
