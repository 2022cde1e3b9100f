// Command manual makes manual pages and shell completions from what the commands say of themselves:
// manual XWARP XWARPD DIRECTORY.
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

// command is a line of the list of commands in a help text: the name, and what it does in one line.
var command = regexp.MustCompile(`(?m)^  ([a-z][a-z_-]*) {2,}(\S.*)$`)

// commands are those of a list in a help text: name and what it does.
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

// pages writes the page of a command and those of the commands below it.
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

// heading is a line such as "Flags:".
var heading = regexp.MustCompile(`^([A-Z][A-Za-z ]+):$`)

// page makes troff of a help text, which keeps its lines.
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

// escape keeps troff from reading text as requests.
func escape(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}
