package matrix

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"xwarp/bench/endpoint"
)

func TestSpread(t *testing.T) {
	for _, tc := range []struct {
		name        string
		in          []float64
		mid, lo, hi float64
	}{
		{"odd", []float64{3, 1, 2}, 2, 1, 3},
		{"even", []float64{4, 1, 2, 3}, 2.5, 1, 4},
		{"one round failed", []float64{missing, 1, 5}, 3, 1, 5},
		{"all failed", []float64{missing, math.NaN(), math.Inf(1)}, missing, missing, missing},
		{"none", nil, missing, missing, missing},
	} {
		mid, lo, hi := spread(tc.in)
		if mid != tc.mid || lo != tc.lo || hi != tc.hi {
			t.Errorf("%s: %v (%v – %v), want %v (%v – %v)", tc.name, mid, lo, hi, tc.mid, tc.lo,
				tc.hi)
		}
	}
}

// TestQuotient checks that values of the same round are divided. A round has no ratio if either measurement failed or
// the divisor is 0.
func TestQuotient(t *testing.T) {
	got := quotient([]float64{2, 9, missing, 8, 1}, []float64{1, 3, 4, missing, 0})
	if d := cmp.Diff([]float64{2, 3, missing, missing, missing}, got); d != "" {
		t.Error(d)
	}
}

// TestTargetsExist checks that every variant of a case has a valid Spec, and that every target names variants that some
// case measures. The names of cases and of targets must be unique.
func TestTargetsExist(t *testing.T) {
	known := map[string]bool{}
	seen := map[string]bool{}
	for _, c := range append(Standard(), Extra()...) {
		if seen[c.Name] {
			t.Errorf("two cases are called %s", c.Name)
		}
		seen[c.Name] = true
		for i := range c.Variants {
			v := &c.Variants[i]
			known[c.Name+"/"+v.Name] = true
			if err := v.Spec.Complete(); err != nil {
				t.Errorf("%s: %s: %v", c.Name, v.Name, err)
			}
		}
	}
	rows := map[string]bool{}
	for _, g := range Targets() {
		for _, v := range []string{g.Of, g.To} {
			if !known[g.Case+"/"+v] {
				t.Errorf("%s: nobody measures %s/%s", g.Row, g.Case, v)
			}
		}
		if rows[g.Row] {
			t.Errorf("two targets are called %q", g.Row)
		}
		rows[g.Row] = true
	}
}

func TestCheck(t *testing.T) {
	old := &Results{Ratios: []Ratio{
		{Row: "fast", Median: 1, Want: 1}, {Row: "small", Median: 0.1, Want: 0.1, Small: true},
		{Row: "shown", Median: 5},
		{Row: "was never measured", Median: missing, Want: 1},
	}}
	for _, tc := range []struct {
		name string
		now  []Ratio
		bad  []string
	}{
		{"the same", old.Ratios, nil},
		{"a tenth slower", []Ratio{{Row: "fast", Median: 0.9, High: 0.95, Want: 1}}, nil},
		{"much slower", []Ratio{{Row: "fast", Median: 0.5, High: 0.6, Want: 1}}, []string{"fast"}},
		{"slower, but one round as good", []Ratio{{Row: "fast", Median: 0.7, High: 1, Want: 1}},
			nil},
		{"larger where smaller is better", []Ratio{{Row: "small", Median: 0.2, Low: 0.18, Want: 0.1,
			Small: true}}, []string{"small"}},
		{"smaller where smaller is better",
			[]Ratio{{Row: "small", Median: 0.01, Low: 0.01, Want: 0.1, Small: true}}, nil},
		{"fails now", []Ratio{{Row: "fast", Median: missing, Low: missing, High: missing, Want: 1}},
			[]string{"fast"}},
		{"only shown", []Ratio{{Row: "shown", Median: 1, High: 1}}, nil},
		{"new", []Ratio{{Row: "new", Median: 0.1, High: 0.1, Want: 1}}, nil},
	} {
		err := Check(&Results{Ratios: tc.now}, old)
		if (err != nil) != (tc.bad != nil) || err != nil && !errors.Is(err, ErrRegression) {
			t.Errorf("%s: %v", tc.name, err)
		}
		for _, row := range tc.bad {
			if !strings.Contains(err.Error(), row) {
				t.Errorf("%s: %v does not name %q", tc.name, err, row)
			}
		}
	}
}

// TestOtherProcessor checks that Check refuses results of another processor model.
func TestOtherProcessor(t *testing.T) {
	old := &Results{Env: endpoint.Env{CPU: "one"},
		Ratios: []Ratio{{Row: "fast", Median: 1, Want: 1}}}
	now := &Results{Env: endpoint.Env{CPU: "other"},
		Ratios: []Ratio{{Row: "fast", Median: 0.1, High: 0.1, Want: 1}}}
	if err := Check(now, old); !errors.Is(err, ErrProcessor) || errors.Is(err, ErrRegression) {
		t.Error(err)
	}
}

// TestSave checks that saved results load unchanged, and that the Markdown file and every plot are written.
func TestSave(t *testing.T) {
	res := &Results{Schema: Schema, Date: "2026-01-01", Rounds: 2,
		Env: endpoint.Env{CPU: "Maker(R) Model X (family 6, model 167)"}}
	for _, c := range append(Standard(), Extra()...) {
		r := CaseResult{Name: c.Name, Title: c.Title, MTU: c.MTU, Metric: c.Metric}
		for _, v := range c.Variants {
			x := VariantResult{Name: v.Name, Spec: v.Spec, Values: map[Metric][]float64{}}
			for k := range 2 {
				s := 1 + float64(k)
				x.add(&endpoint.Report{
					Spec: v.Spec, Server: &endpoint.Result{Seconds: 1, Messages: 5, Bytes: 500,
						Frames: 7, FrameBytes: 700},
					Client: &endpoint.Result{Seconds: s, Messages: 10, Bytes: 1000, Frames: 7,
						FrameBytes: 700, HeldHigh: 9,
						Latency: &endpoint.Latencies{P50: s, P99: 2 * s, CDF: [][2]float64{{s, 0.5},
							{2 * s, 0.99}}}},
				}, nil)
			}
			r.Variants = append(r.Variants, x)
		}
		res.Cases = append(res.Cases, r)
	}
	res.Ratios = ratios(res)
	if len(res.Ratios) != len(Targets()) {
		t.Errorf("%d ratios of %d targets", len(res.Ratios), len(Targets()))
	}
	out := t.TempDir()
	if err := res.Save(out); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(out, "maker-r-model-x-family-6-model-167")
	again, err := Load(filepath.Join(dir, FileJSON))
	if err != nil {
		t.Fatal(err)
	}
	a, _ := json.Marshal(res)
	b, _ := json.Marshal(again)
	if string(a) != string(b) {
		t.Error("results differ after saving and loading")
	}
	for _, f := range []string{FileMarkdown, "bandwidth.svg", "mtu.svg", "loss.svg", "held.svg",
		"latency.svg"} {
		b, err := os.ReadFile(filepath.Join(dir, f))
		if err != nil || len(b) < 500 {
			t.Errorf("%s: %d bytes, %v", f, len(b), err)
		}
	}
	if _, err := Load(filepath.Join(dir, FileMarkdown)); err == nil {
		t.Error("Markdown loads as JSON")
	}
}

// TestCheckSteady checks that an allocation for each thousand frames is a regression, and so are two garbage
// collections. The allocations of timers and of looks at the interface are not.
func TestCheckSteady(t *testing.T) {
	for _, tc := range []struct {
		allocations uint64
		collections uint32
		bad         bool
	}{{0, 0, false}, {3_500, 1, false}, {12_000, 0, true}, {0, 2, true}} {
		v := VariantResult{
			Name: ours, Values: map[Metric][]float64{Frames: {400_000}},
			Spec:        endpoint.Spec{Duration: steady},
			Allocations: tc.allocations, Collections: tc.collections,
		}
		err := Check(&Results{Cases: []CaseResult{{Name: steadyName,
			Variants: []VariantResult{v}}}}, &Results{})
		if errors.Is(err, ErrRegression) != tc.bad {
			t.Errorf("%+v: %v", tc, err)
		}
	}
}
