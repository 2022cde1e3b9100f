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
	for _, c := range []struct{ shell, file string }{{"bash", "xwarp.bash"}, {"zsh", "_xwarp"}, {"fish", "xwarp.fish"}} {
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
	return pages(binary, man, nil)
}

func write(file string, b []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o644)
}

// command is a line of the list of commands in a help text.
var command = regexp.MustCompile(`(?m)^  ([a-z]+) {2,}\S`)

// pages writes the page of a command and those of the commands below it.
func pages(binary, dir string, path []string) error {
	help, err := exec.Command(binary, append(path[:len(path):len(path)], "--help")...).Output()
	if err != nil {
		return fmt.Errorf("help of %v: %w", path, err)
	}
	name := strings.Join(append([]string{"xwarp"}, path...), "-")
	if err := write(filepath.Join(dir, name+".1"), page(name, string(help))); err != nil {
		return err
	}
	_, list, ok := strings.Cut(string(help), "Available Commands:\n")
	if !ok {
		return nil
	}
	list, _, _ = strings.Cut(list, "\n\n")
	for _, m := range command.FindAllStringSubmatch(list, -1) {
		if m[1] == "help" || m[1] == "completion" {
			continue
		}
		if err := pages(binary, dir, append(path[:len(path):len(path)], m[1])); err != nil {
			return err
		}
	}
	return nil
}

// heading is a line such as "Flags:".
var heading = regexp.MustCompile(`^([A-Z][A-Za-z ]+):$`)

// page makes troff of a help text, which keeps its lines.
func page(name, help string) []byte {
	var b bytes.Buffer
	first, _, _ := strings.Cut(help, "\n")
	title(&b, name, 1, first)
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
