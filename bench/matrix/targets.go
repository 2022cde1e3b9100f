package matrix

import (
	_ "embed"
	"encoding/csv"
	"fmt"
	"strings"
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

//go:embed targets.txt
var targets string

// Targets returns every ratio that is reported.
func Targets() (all []Target) {
	r := csv.NewReader(strings.NewReader(targets))
	r.Comma, r.Comment, r.FieldsPerRecord = '|', '#', 5
	rows, err := r.ReadAll()
	if err != nil {
		panic(err) // the file is part of the program
	}
	for _, f := range rows {
		for i := range f {
			f[i] = strings.TrimSpace(f[i])
		}
		t := Target{Row: f[0], Case: f[1], Metric: Metric(f[3])}
		t.Of, t.To, _ = strings.Cut(f[2], " / ")
		sign, limits, _ := strings.Cut(f[4], " ")
		t.Small = sign == "≤"
		fmt.Sscanf(limits, "%g (%g)", &t.Want, &t.Beyond)
		all = append(all, t)
	}
	return all
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
