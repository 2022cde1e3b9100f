package matrix

import (
	_ "embed"
	"encoding/csv"
	"fmt"
	"strings"
)

// Ratio is a target and its measurement.
type Ratio struct {
	Row    string  `json:"row"` // its name in the report
	Case   string  `json:"case"`
	Of     string  `json:"of"` // the variant whose values are divided by those of To
	To     string  `json:"to"`
	Metric Metric  `json:"metric"`
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	Best   float64 `json:"best"`             // best round of Of divided by the best round of To
	Want   float64 `json:"want,omitempty"`   // the target; 0: none
	Beyond float64 `json:"beyond,omitempty"` // a more ambitious target; 0: none
	Small  bool    `json:"smaller_is_better,omitempty"`
}

//go:embed targets.txt
var targets string

// Targets returns all ratios of targets.txt, without measured values.
func Targets() (all []Ratio) {
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
		t := Ratio{Row: f[0], Case: f[1], Metric: Metric(f[3])}
		t.Of, t.To, _ = strings.Cut(f[2], " / ")
		sign, limits, _ := strings.Cut(f[4], " ")
		t.Small = sign == "≤"
		fmt.Sscanf(limits, "%g (%g)", &t.Want, &t.Beyond)
		all = append(all, t)
	}
	return all
}

// variants returns the variants of the case called name, nil if it was not measured.
func (r *Results) variants(name string) []VariantResult {
	for i := range r.Cases {
		if r.Cases[i].Name == name {
			return r.Cases[i].Variants
		}
	}
	return nil
}

// find returns the values of metric m for a variant of the case called name, nil if it was not measured.
func (r *Results) find(name, variant string, m Metric) []float64 {
	for _, v := range r.variants(name) {
		if v.Name == variant {
			return v.Values[m]
		}
	}
	return nil
}

// ratios returns all ratios whose two variants were measured, with their values.
func ratios(res *Results) (out []Ratio) {
	for _, r := range Targets() {
		of, to := res.find(r.Case, r.Of, r.Metric), res.find(r.Case, r.To, r.Metric)
		if of == nil || to == nil {
			continue
		}
		r.Median, r.Low, r.High = spread(quotient(of, to))
		r.Best = best(of, to, r.Small)
		out = append(out, r)
	}
	return out
}

// Verdict returns "missed", "reached" or "beyond" by comparing the median with the targets. It returns "not measured"
// without a median, and "" without Want unless Beyond is reached.
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
