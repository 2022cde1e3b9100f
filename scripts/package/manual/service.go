package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// service writes the pages xwarpd(8), with the options of the daemon's help, and xwarp.toml(5), which is the commented
// default configuration file.
func service(binary, daemon, dir string) error {
	help := exec.Command(daemon, "--help")
	var said bytes.Buffer
	help.Stderr = &said
	if err := help.Run(); err != nil {
		return fmt.Errorf("%s --help: %w", daemon, err)
	}
	if err := write(filepath.Join(dir, "xwarpd.8"), daemonPage(said.String())); err != nil {
		return err
	}
	file, err := exec.Command(binary, "config", "default").Output()
	if err != nil {
		return fmt.Errorf("config default: %w", err)
	}
	return write(filepath.Join(dir, "xwarp.toml.5"), configPage(string(file)))
}

func title(b *bytes.Buffer, name string, section int, summary string) {
	fmt.Fprintf(b, ".TH %s %d \"\" \"xwarp %s\" \"xwarp\"\n.SH NAME\n%s \\- %s\n",
		strings.ToUpper(escape(name)), section, os.Getenv("VERSION"), escape(name), escape(summary))
}

// related are the pages that refer to each other in SEE ALSO.
var related = []string{"xwarp(1)", "xwarpd(8)", "xwarp.toml(5)", "xwarp-doctor(1)"}

func seeAlso(b *bytes.Buffer, name string) {
	var others []string
	for _, r := range related {
		if !strings.HasPrefix(r, name+"(") {
			others = append(others, escape(r))
		}
	}
	fmt.Fprintf(b, ".SH SEE ALSO\n%s\n", strings.Join(others, ", "))
}

// about has the sections of xwarpd(8) that are not in the daemon's help. Each begins with a line "# HEADING".
//
//go:embed xwarpd.txt
var about string

// daemonPage returns xwarpd(8). help is the daemon's help: a summary, an empty line, and the options.
func daemonPage(help string) []byte {
	var b bytes.Buffer
	title(&b, "xwarpd", 8, "iWARP over AF_XDP as a service")
	summary, options, _ := strings.Cut(help, "\n\n")
	verbatim(&b, "SYNOPSIS", "xwarpd [option ...]")
	verbatim(&b, "DESCRIPTION", summary)
	verbatim(&b, "OPTIONS", strings.TrimRight(options, "\n"))
	for section := range strings.SplitSeq(strings.TrimPrefix(about, "# "), "\n# ") {
		heading, text, _ := strings.Cut(section, "\n")
		verbatim(&b, heading, strings.TrimRight(text, "\n"))
	}
	seeAlso(&b, "xwarpd")
	return b.Bytes()
}

// table matches a line that begins a table of the configuration file, also if it is commented out.
var table = regexp.MustCompile(`^(?:# )?(\[+[a-z.]+\]+)$`)

// configPage returns xwarp.toml(5) for the commented configuration file, with a section for each table.
func configPage(file string) []byte {
	var b bytes.Buffer
	title(&b, "xwarp.toml", 5, "configuration of xwarpd")
	sections := []struct{ heading, text string }{{"DESCRIPTION", ""}}
	for line := range strings.Lines(file) {
		if m := table.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			sections = append(sections, struct{ heading, text string }{m[1], ""})
		}
		sections[len(sections)-1].text += line
	}
	for _, s := range sections {
		verbatim(&b, s.heading, strings.TrimRight(s.text, "\n"))
	}
	seeAlso(&b, "xwarp.toml")
	return b.Bytes()
}

// verbatim writes a section with a heading and a text whose lines stay as they are.
func verbatim(b *bytes.Buffer, heading, text string) {
	fmt.Fprintf(b, ".SH %s\n.nf\n", strings.ToUpper(escape(heading)))
	for line := range strings.Lines(text) {
		fmt.Fprintln(b, escape(strings.TrimRight(line, "\n")))
	}
	b.WriteString(".fi\n")
}
