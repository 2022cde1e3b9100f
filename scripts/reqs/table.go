package main

import (
	"fmt"
	"slices"
	"strings"
)

// check compares the requirements with the source and returns the faults.
func check(list []requirement, s *source) (faults []string) {
	faults = append(faults, s.faults...)
	known := map[string]bool{}
	for _, q := range list {
		known[q.id] = true
		n := len(s.proves[q.id])
		at := fmt.Sprintf("requirements.txt:%d: %s: ", q.line, q.id)
		switch {
		case q.reason != "" && n > 0:
			faults = append(faults, at+"has tests: remove the reason")
		case q.reason == "" && n == 0:
			faults = append(faults, at+"no test has "+annotation+q.id+" in its comment")
		}
		if q.reason == "" && !s.names[q.code] {
			faults = append(faults, at+"no such code: "+q.code)
		}
	}
	for id, tests := range s.proves {
		if !known[id] {
			faults = append(faults, fmt.Sprintf("%s names %s, which is not in requirements.txt",
				tests[0], id))
		}
	}
	slices.Sort(faults)
	return faults
}

// documents are the documents with requirements, in the order of the table. The last entry stands for all others.
var documents = []struct{ name, title string }{
	{"rfc5044", "RFC 5044: MPA"},
	{"rfc5041", "RFC 5041: DDP"},
	{"rfc5040", "RFC 5040: RDMAP"},
	{"rfc6581", "RFC 6581: enhanced connection establishment"},
	{"rfc7306", "RFC 7306: atomics and immediate data"},
	{"rfc9293", "RFC 9293: TCP"},
	{"rfc5681", "RFC 5681: congestion control"},
	{"rfc6298", "RFC 6298: retransmission timer"},
	{"rfc5961", "RFC 5961: blind attacks"},
	{"rfc7323", "RFC 7323: timestamps and window scaling"},
	{"rfc6675", "RFC 6675: loss recovery by SACK"},
	{"rfc8985", "RFC 8985: RACK and TLP"},
	{"rfc9768", "RFC 9768: accurate ECN"},
	{"", "Drafts and other texts"},
}

// table returns the table of requirements in Markdown and HTML, with a part for each document.
func table(list []requirement, s *source) string {
	var b strings.Builder
	for _, d := range documents {
		var rows []requirement
		for _, q := range list {
			if q.document() == d.name || d.name == "" &&
				!slices.ContainsFunc(documents, func(o struct{ name, title string }) bool {
					return o.name == q.document()
				}) {
				rows = append(rows, q)
			}
		}
		if len(rows) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n<details><summary>%s: %s</summary>\n\n| | requirement | code | proven "+
			"by |\n|---|---|---|---|\n", d.title, summary(rows))
		for _, q := range rows {
			fmt.Fprintf(&b, "| %s | %s %s | %s |\n", strings.TrimPrefix(q.id, d.name+"-"), q.level,
				escape(q.text), proof(&q, s))
		}
		b.WriteString("\n</details>\n")
	}
	b.WriteByte('\n')
	return b.String()
}

func summary(rows []requirement) string {
	count := map[string]int{}
	for _, q := range rows {
		count[q.code]++
	}
	none, unproven := count[notApplicable], count[open]
	text := fmt.Sprintf("%d proven", len(rows)-none-unproven)
	if none > 0 {
		text += fmt.Sprintf(", %d not applicable", none)
	}
	if unproven > 0 {
		text += fmt.Sprintf(", %d open", unproven)
	}
	return text
}

// proof returns the last two cells of a requirement's row: its code and its tests, or the reason for having none.
func proof(q *requirement, s *source) string {
	if q.reason != "" {
		return " | " + q.code + ": " + escape(q.reason)
	}
	var parts []string
	last := ""
	for _, t := range slices.Sorted(slices.Values(s.proves[q.id])) {
		dir, name, _ := strings.Cut(t, " ")
		if dir != last {
			last = dir
			parts = append(parts, t)
			continue
		}
		parts[len(parts)-1] += " " + name
	}
	return "`" + q.code + "` | " + strings.Join(parts, "; ")
}

func escape(s string) string { return strings.ReplaceAll(s, "|", "\\|") }
