// Command runtests runs go vet and go test for make test. It prints a line for each package and each long test, and the
// output of tests that fail. If it has printed nothing for half a minute, it prints which tests are running.
//
//	go run ./scripts/runtests [FLAGS OF GO TEST] -- PACKAGE...
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"time"
)

const (
	silence = 30 * time.Second // time without output after which the running tests are printed
	long    = 10               // seconds from which on a test gets a line of its own
)

func main() {
	signal.Notify(make(chan os.Signal, 1), os.Interrupt) // ignored here: go ends, and this process prints the rest
	flags, packages := os.Args[1:], []string{"./..."}
	if i := slices.Index(flags, "--"); i >= 0 {
		flags, packages = flags[:i], flags[i+1:]
	}
	r := newReport(os.Stdout, slices.Contains(flags, "-v"))
	err := r.run("go vet", slices.Concat([]string{"vet"}, packages))
	if err == nil {
		err = r.run("go test", slices.Concat([]string{"test", "-json"}, flags, packages))
	}
	r.summary()
	if err != nil {
		fmt.Fprintln(os.Stderr, "runtests:", err)
		os.Exit(1)
	}
}

// event is a line in the output of go test -json: see go doc test2json and go help buildjson.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

// name identifies a test, or a package if test is empty.
type name struct{ pkg, test string }

func (n name) String() string { return strings.TrimSpace(n.pkg + " " + n.test) }

type report struct {
	out     io.Writer
	verbose bool
	begin   time.Time
	printed time.Time          // time of the last output
	started map[name]time.Time // the tests and packages that are running, with the time of their start
	output  map[name]string    // their output, which is printed if they fail
	count   map[string]int     // number of tests by result
	failed  []name
}

func newReport(out io.Writer, verbose bool) *report {
	now := time.Now()
	return &report{out: out, verbose: verbose, begin: now, printed: now,
		started: map[name]time.Time{}, output: map[name]string{}, count: map[string]int{}}
}

// run runs the go command with args until it ends, and reports its events. what is the command's name in messages.
func (r *report) run(what string, args []string) error {
	c := exec.Command("go", args...)
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	events := make(chan event)
	go func() {
		defer close(events)
		for lines := bufio.NewReader(out); ; {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return
			}
			var e event
			if json.Unmarshal(line, &e) != nil {
				e = event{Action: "build-output", Output: string(line)}
			}
			events <- e
		}
	}()
	for tick := time.NewTicker(time.Second); ; {
		select {
		case e, ok := <-events:
			if !ok {
				tick.Stop()
				if err := c.Wait(); err != nil {
					return fmt.Errorf("%s: %w", what, err)
				}
				return nil
			}
			r.handle(e)
		case now := <-tick.C:
			if now.Sub(r.printed) >= silence {
				r.print("%s\n", r.running(what, now))
			}
		}
	}
}

func (r *report) print(format string, args ...any) {
	r.printed = time.Now()
	fmt.Fprintf(r.out, format, args...)
}

// handle updates the report by an event, and prints the output and the lines that are due after it.
func (r *report) handle(e event) {
	n := name{e.Package, e.Test}
	switch e.Action {
	case "start", "run", "cont":
		r.started[n] = time.Now()
	case "pause": // the test called t.Parallel and waits until other tests have ended
		delete(r.started, n)
	case "build-output":
		r.print("%s", e.Output)
	case "output":
		switch {
		case r.verbose, e.Test == "" && strings.HasPrefix(e.Output, "ok  \t"):
			r.print("%s", e.Output)
		case !strings.HasPrefix(e.Output, "=== "):
			r.output[n] += e.Output
		}
	case "pass", "fail", "skip":
		if e.Test == "" { // tests of the package that did not end get its result
			for of := range r.started {
				if of.pkg == n.pkg && of.test != "" {
					r.handle(event{Action: e.Action, Package: of.pkg, Test: of.test})
				}
			}
		}
		if e.Action == "fail" {
			r.print("%s", r.output[n])
			r.failed = append(r.failed, n)
		}
		if e.Test != "" {
			r.count[e.Action]++
			if e.Elapsed >= long && !strings.Contains(e.Test, "/") {
				r.print("    \t%v\t%.1fs\n", n, e.Elapsed)
			}
		}
		delete(r.started, n)
		delete(r.output, n)
	}
}

// running returns a line with the tests that are running, except those that wait for their subtests. If no test is
// running, the line says that go builds.
func (r *report) running(what string, now time.Time) string {
	parents := map[name]bool{}
	for n := range r.started {
		for i, c := range n.test {
			if c == '/' {
				parents[name{n.pkg, n.test[:i]}] = true
			}
		}
	}
	var list []string
	for n, at := range r.started {
		if n.test != "" && !parents[n] {
			list = append(list, fmt.Sprintf("%v (%.0fs)", n, now.Sub(at).Seconds()))
		}
	}
	if list == nil {
		list = []string{what + " builds"}
	}
	slices.Sort(list)
	after := now.Sub(r.begin).Round(time.Second)
	return fmt.Sprintf("... \tafter %v: %s", after, strings.Join(list, ", "))
}

func (r *report) summary() {
	for _, n := range r.failed {
		r.print("FAIL\t%v\n", n)
	}
	r.print("%d tests passed, %d failed, %d skipped in %v\n", r.count["pass"], r.count["fail"],
		r.count["skip"], time.Since(r.begin).Round(time.Second))
}
