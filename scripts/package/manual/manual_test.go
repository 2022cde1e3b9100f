package main

import (
	"strings"
	"testing"
)

// No line of a help text becomes a request of troff.
func TestPage(t *testing.T) {
	got := string(page("xwarp-x", "short\n\n.SH not a request\n'quoted\n\\fB\n\nFlags:\n  --all\n"))
	for _, want := range []string{".TH XWARP-X 1\n", "xwarp\\-x \\- short\n", "\n\\&.SH not", "\n\\&'quoted", "\n\\efB\n", "\n.SH FLAGS\n", "\\-\\-all"} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %q:\n%s", want, got)
		}
	}
}
