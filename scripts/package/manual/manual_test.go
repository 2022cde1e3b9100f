package main

import (
	"strings"
	"testing"

	"xwarp/engine/daemon/config"
)

// No line of a help text becomes a request of troff.
func TestPage(t *testing.T) {
	got := string(page("xwarp-x", "short\n\n.SH not a request\n'quoted\n\\fB\n\nFlags:\n  --all\n"))
	for _, want := range []string{".TH XWARP\\-X 1 ", "xwarp\\-x \\- short\n", "\n\\&.SH not", "\n\\&'quoted", "\n\\efB\n", "\n.SH FLAGS\n", "\\-\\-all"} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %q:\n%s", want, got)
		}
	}
}

// The page of the configuration has a section for every table, and every line of the file.
func TestConfigPage(t *testing.T) {
	got := string(configPage(config.Default))
	for _, want := range []string{".TH XWARP.TOML 5", ".SH DESCRIPTION\n", ".SH [DAEMON]\n", ".SH [[INTERFACE]]\n", ".SH [[PEER]]\n", ".SH [[EXPORT]]\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %q", want)
		}
	}
	for line := range strings.Lines(config.Default) {
		if !strings.Contains(got, escape(strings.TrimSuffix(line, "\n"))+"\n") {
			t.Errorf("lacks the line %q", line)
		}
	}
}

func TestDaemonPage(t *testing.T) {
	got := string(daemonPage("xwarpd serves.\n\n  -check\n    \tread the configuration and end\n"))
	for _, want := range []string{".TH XWARPD 8", ".SH OPTIONS\n.nf\n  \\-check\n", ".SH EXIT STATUS\n", ".SH SEE ALSO\nxwarp(1), xwarp.toml(5)"} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %q:\n%s", want, got)
		}
	}
}
