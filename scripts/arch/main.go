// Command arch runs tests for other processors, emulated by qemu-user. It writes a table of packages and processors
// with the numbers of passed and skipped tests and the names of failed ones. Run it through make arch.
//
//	go run ./scripts/arch [-out FILE] [-exec WRAPPER] [-timeout 60m] [-again] PACKAGE...
//
// The output of go test is kept as JSON in build/arch. With -again the command only rebuilds the table from it. Exit
// status 1 means that a test failed.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"xwarp/scripts/lab/table"
)

// processors are the values of GOARCH to test, each with its column in the table and its emulator.
var processors = []struct{ name, column, emulator string }{
	{"s390x", "s390x (big-endian)", "qemu-s390x"},
	{"arm64", "arm64", "qemu-aarch64"},
}

const dir = "build/arch"

const preamble = `# Tests on other processors

Written by ` + "`make arch`" + `: the tests of these packages as programs for another processor, by user-mode emulation (%s). Tests that need eBPF,
AF_XDP, veth pairs or TCP_INFO skip, where the emulation has none; [kernels](kernels.md) runs those in a virtual machine. Subtests are not counted.

`

func main() {
	var o options
	flag.StringVar(&o.out, "out", "bench/results/arch.md", "the table")
	flag.StringVar(&o.wrapper, "exec", "", "command that runs the emulator, such as sudo")
	flag.DurationVar(&o.timeout, "timeout", time.Hour, "for the tests of one package")
	flag.BoolVar(&o.rerun, "again", false, "only rebuild the table from an earlier run")
	flag.Parse()
	o.packages = flag.Args()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	failed, err := o.testPackages(ctx)
	if err == nil && failed > 0 {
		err = fmt.Errorf("tests of %d packages failed", failed)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "arch:", err)
		os.Exit(1)
	}
}

type options struct {
	out, wrapper string
	timeout      time.Duration
	rerun        bool
	packages     []string
}

func (o *options) testPackages(ctx context.Context) (failed int, err error) {
	version, err := exec.CommandContext(ctx, processors[0].emulator, "--version").Output()
	if err != nil {
		return 0, err
	}
	emulator, _, _ := strings.Cut(string(version), "\n")
	t := &table.Table{Columns: map[string]map[string]table.Cell{}}
	var columns, rows []string
	for _, p := range processors {
		columns = append(columns, p.column)
		file := filepath.Join(dir, p.name+".json")
		if !o.rerun {
			if err := o.test(ctx, p.name, p.emulator, file); err != nil {
				return 0, err
			}
		}
		packages, err := o.read(file)
		if err != nil {
			return 0, err
		}
		for name, c := range packages {
			t.Set(p.column, name, c.cell())
			if !slices.Contains(rows, name) {
				rows = append(rows, name)
			}
		}
	}
	slices.Sort(rows)
	text := fmt.Sprintf(preamble, emulator) + t.Markdown(columns, rows)
	return t.Failed(), os.WriteFile(o.out, []byte(text), 0o644)
}

// test runs go test for the processor arch and writes its JSON output to file. Failed tests are not an error.
func (o *options) test(ctx context.Context, arch, emulator, file string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json", "-exec",
		strings.TrimSpace(o.wrapper + " " + emulator), "-timeout", o.timeout.String()},
		o.packages...)...)
	cmd.Env = append(os.Environ(), "GOARCH="+arch, "EMULATOR="+emulator)
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	err = cmd.Run()
	var ended *exec.ExitError
	if errors.As(err, &ended) && ctx.Err() == nil {
		return nil // the file contains the failures
	}
	return err
}

// counts are the results of the tests of one package.
type counts struct {
	passed, skipped int
	failed          []string
	outcome         string // result of the package: pass, fail or skip; empty until it is known
}

func (c *counts) cell() table.Cell {
	if c.outcome == "fail" || len(c.failed) > 0 {
		return table.CellOf("", fmt.Errorf("%d passed; %s", c.passed, strings.Join(c.failed, ", ")))
	}
	text := fmt.Sprintf("%d", c.passed)
	if c.skipped > 0 {
		text += fmt.Sprintf(", %d skipped", c.skipped)
	}
	return table.CellOf(text, nil)
}

// read counts the results in file, an output of go test -json, by package. It prints the output of failed tests.
func (o *options) read(file string) (map[string]*counts, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return count(f, os.Stdout)
}

func count(r io.Reader, report io.Writer) (map[string]*counts, error) {
	packages := map[string]*counts{}
	outputs := map[string]*strings.Builder{} // by package and test
	for d := json.NewDecoder(r); ; {
		var e struct{ Action, Package, Test, Output string }
		if err := d.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		if e.Package == "" {
			continue // build output
		}
		c := packages[e.Package]
		if c == nil {
			c = &counts{}
			packages[e.Package] = c
		}
		key := e.Package + " " + e.Test
		if outputs[key] == nil {
			outputs[key] = &strings.Builder{}
		}
		outputs[key].WriteString(e.Output)
		c.add(e.Action, e.Test)
		switch e.Action {
		case "fail":
			fmt.Fprintf(report, "%s\n%s", key, outputs[key])
			fallthrough
		case "pass", "skip":
			delete(outputs, key)
		}
	}
	for name, c := range packages {
		if c.outcome == "skip" { // the package has no tests
			delete(packages, name)
		} else if c.outcome == "" {
			c.outcome, c.failed = "fail", append(c.failed, "did not finish")
		}
	}
	return packages, nil
}

// add counts an event of go test -json: of a test, or of the package if test is empty.
func (c *counts) add(action, test string) {
	switch {
	case strings.Contains(test, "/"): // subtests count with their test
	case test == "" && (action == "pass" || action == "fail" || action == "skip"):
		c.outcome = action
	case action == "pass":
		c.passed++
	case action == "skip":
		c.skipped++
	case action == "fail":
		c.failed = append(c.failed, test)
	}
}
