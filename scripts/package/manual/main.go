// Command manual generates manual pages and shell completions into a directory, from the help texts of xwarp and
// xwarpd:
//
//	manual XWARP XWARPD DIRECTORY
package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: manual XWARP XWARPD DIRECTORY")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "manual:", err)
		os.Exit(1)
	}
}

func run(binary, daemon, dir string) error {
	for _, c := range []struct{ shell, file string }{{"bash", "xwarp.bash"}, {"zsh", "_xwarp"},
		{"fish", "xwarp.fish"}} {
		b, err := exec.Command(binary, "completion", c.shell).Output()
		if err != nil {
			return fmt.Errorf("completion %s: %w", c.shell, err)
		}
		if err := write(filepath.Join(dir, "completion", c.file), b); err != nil {
			return err
		}
	}
	man := filepath.Join(dir, "man")
	if err := service(binary, daemon, man); err != nil {
		return err
	}
	return pages(binary, man, nil, "iWARP on any Linux network interface, in user space")
}

func write(file string, b []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o644)
}

// command matches a line in the list of commands of a help text: the name and a summary.
var command = regexp.MustCompile(`(?m)^  ([a-z][a-z_-]*) {2,}(\S.*)$`)

// commands returns the commands that a help text lists, each with its summary, except help and completion.
func commands(help string) (list [][2]string) {
	_, text, ok := strings.Cut(help, "Available Commands:\n")
	if !ok {
		return nil
	}
	text, _, _ = strings.Cut(text, "\n\n")
	for _, m := range command.FindAllStringSubmatch(text+"\n", -1) {
		if m[1] != "help" && m[1] != "completion" {
			list = append(list, [2]string{m[1], m[2]})
		}
	}
	return list
}

// pages writes the manual page of the command path and those of all commands below it. what is the command's summary.
func pages(binary, dir string, path []string, what string) error {
	help, err := exec.Command(binary, append(slices.Clip(path), "--help")...).Output()
	if err != nil {
		return fmt.Errorf("help of %v: %w", path, err)
	}
	name := strings.Join(append([]string{"xwarp"}, path...), "-")
	if err := write(filepath.Join(dir, name+".1"), page(name, what, string(help))); err != nil {
		return err
	}
	for _, c := range commands(string(help)) {
		if err := pages(binary, dir, append(slices.Clip(path), c[0]), c[1]); err != nil {
			return err
		}
	}
	return nil
}

// heading matches a heading in a help text, such as "Flags:".
var heading = regexp.MustCompile(`^([A-Z][A-Za-z ]+):$`)

// page returns the troff source of a manual page for a help text. The lines of the text stay as they are.
func page(name, what, help string) []byte {
	var b bytes.Buffer
	title(&b, name, 1, what)
	fmt.Fprintf(&b, ".SH DESCRIPTION\n.nf\n")
	for line := range strings.Lines(help) {
		line = strings.TrimRight(line, "\n")
		if m := heading.FindStringSubmatch(line); m != nil {
			fmt.Fprintf(&b, ".fi\n.SH %s\n.nf\n", strings.ToUpper(m[1]))
			continue
		}
		fmt.Fprintln(&b, escape(line))
	}
	b.WriteString(".fi\n")
	verbatim(&b, "EXIT STATUS", `0   done
1   it failed; the last line on stderr says why
64  wrong arguments
78  wrong configuration (xwarp config)`)
	seeAlso(&b, name)
	return b.Bytes()
}

// escape escapes text so that troff does not interpret it.
func escape(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}
