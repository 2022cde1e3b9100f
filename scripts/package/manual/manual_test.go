package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"xwarp/engine/daemon/config"
)

// TestPage checks the page of a help text, and that troff would not interpret any line of the text as a request.
func TestPage(t *testing.T) {
	got := string(page("xwarp-x", "short", "long\n\n.SH not a request\n'quoted\n\\fB\n\nFlags:\n "+
		" --all\n"))
	for _, want := range []string{".TH XWARP\\-X 1 ", "xwarp\\-x \\- short\n", "\n\\&.SH not",
		"\n\\&'quoted", "\n\\efB\n", "\n.SH FLAGS\n", ".SH EXIT STATUS\n.nf\n0   done\n1 ",
		"\\-\\-all"} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %q:\n%s", want, got)
		}
	}
}

// TestConfigPage checks that the page of the configuration has a section for every table and every line of the file.
func TestConfigPage(t *testing.T) {
	got := string(configPage(config.Default))
	for _, want := range []string{".TH XWARP.TOML 5", ".SH DESCRIPTION\n", ".SH [DAEMON]\n",
		".SH [[INTERFACE]]\n", ".SH [[PEER]]\n", ".SH [[EXPORT]]\n"} {
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
	for _, want := range []string{".TH XWARPD 8", ".SH OPTIONS\n.nf\n  \\-check\n",
		".SH EXIT STATUS\n", "\n64  wrong arguments", "\n75  not confirmed in time",
		".SH SEE ALSO\nxwarp(1), xwarp.toml(5)"} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %q:\n%s", want, got)
		}
	}
}

// TestEveryCommandHasItsPage checks that commands at each level have a page, and that the NAME section of each page has
// a complete summary.
func TestEveryCommandHasItsPage(t *testing.T) {
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", dir+"/", "xwarp/cmd/xwarp", "xwarp/cmd/xwarpd")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := run(filepath.Join(dir, "xwarp"), filepath.Join(dir, "xwarpd"), dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"xwarp", "xwarp-serve", "xwarp-resource-show", "xwarp-link",
		"xwarp-dev", "xwarp-bench-write_bw", "xwarp-bench-read_lat", "xwarp-config-check"} {
		if _, err := os.Stat(filepath.Join(dir, "man", name+".1")); err != nil {
			t.Error(err)
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "man", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(b), ".SH NAME\n")
		line, _, _ := strings.Cut(rest, "\n")
		_, what, ok := strings.Cut(line, " \\- ")
		last := what[max(len(what)-1, 0):]
		if !ok || what == "" || len(what) > 110 || strings.ContainsAny(last, ",:;") ||
			strings.HasSuffix(what, " and") {
			t.Errorf("%s: NAME is %q", filepath.Base(f), line)
		}
	}
}
