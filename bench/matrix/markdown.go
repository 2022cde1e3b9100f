package matrix

import (
	"cmp"
	"fmt"
	"io"
	"strings"
)

// number prints x, with three decimals below 10 and fewer above. A missing value is a dash.
func number(x float64) string {
	switch {
	case x == missing:
		return "–"
	case x >= 1000:
		return fmt.Sprintf("%.0f", x)
	case x >= 100:
		return fmt.Sprintf("%.1f", x)
	case x >= 10:
		return fmt.Sprintf("%.2f", x)
	}
	return fmt.Sprintf("%.3f", x)
}

func (r *Ratio) wanted() string {
	sign := "≥"
	if r.Small {
		sign = "≤"
	}
	switch {
	case r.Want == 0 && r.Beyond == 0:
		return ""
	case r.Want == 0:
		return fmt.Sprintf("(%s %g)", sign, r.Beyond)
	case r.Beyond == 0:
		return fmt.Sprintf("%s %g", sign, r.Want)
	}
	return fmt.Sprintf("%s %g (%g)", sign, r.Want, r.Beyond)
}

// WriteMarkdown writes the report: ratios first, absolute figures second.
func (res *Results) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	e := &res.Env
	fmt.Fprintf(&b, "# Measured ratios\n\n")
	fmt.Fprintf(&b, "Made by `%s`. %s, kernel %s, %s, %s, %d processors; hosts are network "+
		"namespaces joined by veth.\n", cmp.Or(res.Command, "make bench"), res.Date, e.Kernel,
		e.Go, e.CPU, e.CPUs)
	fmt.Fprintf(&b, "Median (smallest – largest) of at least %d interleaved rounds; ratios are "+
		"taken within a round. \"Best to best\" divides the best rounds of both, because other load "+
		"on\nthe host only makes a round slower. %.0f s in all.\n\n", res.Rounds, res.Seconds)
	fmt.Fprintf(&b, "| figure | ratio | spread | best to best | target (beyond) | "+
		"|\n|---|---:|---|---:|---|---|\n")
	for i := range res.Ratios {
		r := &res.Ratios[i]
		fmt.Fprintf(&b, "| %s | %s | %s – %s | %s | %s | %s |\n", r.Row, number(r.Median),
			number(r.Low), number(r.High), number(r.Best), r.wanted(), r.Verdict())
	}
	if len(res.Failures) > 0 {
		fmt.Fprintf(&b, "\nNot measured:\n\n")
		for _, f := range res.Failures {
			fmt.Fprintf(&b, "- %s\n", strings.ReplaceAll(f, "\n", " "))
		}
	}
	fmt.Fprintf(&b, "\n## Absolute figures\n\n")
	for i := range res.Cases {
		res.Cases[i].markdown(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (c *CaseResult) markdown(b *strings.Builder) {
	fmt.Fprintf(b, "### %s\n\n`%s`\n\n| | %s | spread | other | allocations | collections "+
		"|\n|---|---:|---|---|---:|---:|\n", c.Title, c.Name, c.Metric)
	for i := range c.Variants {
		v := &c.Variants[i]
		m, lo, hi := spread(v.Values[c.Metric])
		fmt.Fprintf(b, "| %s | %s | %s – %s | %s | %d | %d |\n", v.Name, number(m), number(lo),
			number(hi), v.other(c.Metric), v.Allocations, v.Collections)
	}
	b.WriteString("\n")
	for i := range c.Variants {
		if f := c.Variants[i].Failures; len(f) > 0 {
			fmt.Fprintf(b, "%s failed in %d rounds: %s\n\n", c.Variants[i].Name, len(f),
				strings.ReplaceAll(f[0], "\n", " "))
		}
	}
}

// other returns the variant's metrics except but as text, with their medians.
func (v *VariantResult) other(but Metric) string {
	var s []string
	for _, m := range allMetrics {
		if x := median(v.Values[m]); m != but && x != missing && x != 0 {
			s = append(s, number(x)+" "+string(m))
		}
	}
	return strings.Join(s, ", ")
}
