// Command mutate tests the tests of the protocols by mutation. It changes one condition, comparison, constant, operator
// or returned value at a time and runs the tests. A change that no test detects is a survivor: it is printed and makes
// the command fail, unless equivalent.txt explains why no test can detect it. The same seed selects the same changes,
// as far as the code is unchanged.
//
//	go run ./scripts/mutate [-count N] [-seed N] [PACKAGE...]
//
// The quick tests of the changed package run first. Then follow the tests of its tree (./tcp/... for xwarp/tcp/loss)
// and of the tree's users, such as packet scripts, the stack and the simulator. The slowest tests run last. The first
// failure ends the tests of a change and is printed. A test that exceeds its CPU time detects the change. A test that
// exceeds its wall-clock time does not, because the machine may be busy. Files limits.go are not changed, because tests
// use the names of limits and not their values. The command never writes to the repository: go test gets the changed
// file as an overlay.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// protocols are the packages that are changed by default.
var protocols = []string{"./tcp/...", "./mpa/...", "./ddp/..."}

const listPath = "scripts/mutate/equivalent.txt"

func main() {
	log.SetFlags(0)
	log.SetPrefix("mutate: ")
	count := flag.Int("count", 200, "`changes` to test; those that do not compile do not count")
	seed := flag.Uint64("seed", 1, "seed of the selection")
	cpu := flag.Duration("cpu", 30*time.Second,
		"CPU time for a package's quick tests of one change, four times this for other tests; "+
			"exceeding it detects the change")
	timeout := flag.Duration("timeout", 30*time.Minute,
		"wall-clock time for a package's tests of one change; exceeding it counts as survival")
	from := flag.Int("from", 0, "skip this number of `changes`, which an earlier run tested")
	only := flag.String("only", "", "test all changes of this `file:line` only")
	flag.Parse()
	patterns := flag.Args()
	if len(patterns) == 0 {
		patterns = protocols
	}
	r := &runner{cpu: *cpu, timeout: *timeout}
	if err := r.testChanges(patterns, *from, *count, *seed, *only); err != nil {
		log.Fatal(err)
	}
}

// runner tests changes one by one.
type runner struct {
	cpu, timeout time.Duration
	dir          string // temporary directory for changed files and for files that tests leave behind

	tested, noticed, explained, survived, broken int
}

func (r *runner) testChanges(patterns []string, from, count int, seed uint64,
	only string) (err error) {
	if r.dir, err = os.MkdirTemp("", "mutate"); err != nil {
		return err
	}
	defer os.RemoveAll(r.dir)
	changes, err := enumerate(".", patterns)
	if err != nil {
		return err
	}
	explained, err := readEquivalent(listPath, changes)
	if err != nil {
		return err
	}
	fmt.Printf("%d possible changes, seed %d\n", len(changes), seed)
	if err := r.unchanged(patterns); err != nil {
		return err
	}
	for n, c := range shuffled(changes, seed) {
		if n < from {
			continue
		}
		if only != "" && fmt.Sprintf("%s:%d", c.file, c.line) != only {
			continue
		}
		if r.tested == count {
			break
		}
		before := r.tested
		if err := r.test(c, explained[c.key()]); err != nil {
			return err
		}
		if r.tested > before && r.tested%10 == 0 {
			fmt.Printf("%d tested, %d survived, %d explained; to continue: -from %d\n", r.tested,
				r.survived, r.explained, n+1)
		}
	}
	fmt.Printf("%d changes: %d detected (%.1f %%), %d explained, %d survived; %d more did not "+
		"compile\n",
		r.tested, r.noticed, 100*float64(r.noticed)/float64(max(1, r.tested)), r.explained,
		r.survived,
		r.broken)
	if r.survived > 0 {
		return errors.New("write a test for each survivor, or add the reason to equivalent.txt")
	}
	return nil
}

// unchanged checks that the tests pass without a change. Otherwise they would seem to detect every change.
func (r *runner) unchanged(patterns []string) error {
	for _, packages := range append([][]string{patterns}, slices.Collect(maps.Values(users))...) {
		result, by := r.gotest("", 4*r.cpu,
			append([]string{"-short", "-skip", foreign}, packages...)...)
		if result != passed {
			return fmt.Errorf("without a change %s fails: go test -short %s", by,
				strings.Join(packages, " "))
		}
	}
	return nil
}

// test runs the tests with one change, counts the result and prints it. why is the reason in equivalent.txt, "" if
// there is none. With a reason only the quick tests run.
func (r *runner) test(c *change, why string) error {
	overlay, err := r.overlay(c)
	if err != nil {
		return err
	}
	tree, _, _ := strings.Cut(strings.TrimPrefix(c.pkg, module), "/")
	all := "./" + tree + "/..."
	begin := time.Now()
	result, by := r.gotest(overlay, r.cpu, "-short", "-skip", slow+"|"+slowest, c.pkg)
	for _, args := range [][]string{
		append([]string{"-short", "-skip", slowest + "|" + foreign, all}, users[tree]...), {all},
	} {
		if result == passed && why == "" {
			result, by = r.gotest(overlay, 4*r.cpu, args...)
		}
	}
	spent := time.Since(begin).Seconds()
	switch {
	case result == noBuild:
		r.broken++
		return nil
	case result == failed:
		r.noticed++
		fmt.Printf("%s:%d: %s -> %s detected after %.0f s by %s\n", c.file, c.line, c.before,
			c.after, spent, by)
	case result == undecided:
		r.survived++
		fmt.Printf("%s:%d: %s -> %s undecided after %.0f s: %s\n", c.file, c.line, c.before,
			c.after, spent, by)
	case why != "":
		r.explained++
	default:
		r.survived++
		fmt.Printf("%s:%d: %s -> %s survived %.0f s of tests; for equivalent.txt:\n%s\n",
			c.file, c.line, c.before, c.after, spent, c.key())
	}
	r.tested++
	return nil
}

// overlay writes the changed file, and the overlay description of go test, whose path it returns.
func (r *runner) overlay(c *change) (path string, err error) {
	source, err := os.ReadFile(c.file)
	if err != nil {
		return "", err
	}
	changed := filepath.Join(r.dir, "changed.go")
	out := append(append(append([]byte{}, source[:c.from]...), c.after...), source[c.to:]...)
	if err := os.WriteFile(changed, out, 0o600); err != nil {
		return "", err
	}
	original, err := filepath.Abs(c.file)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err != nil {
		return "", err
	}
	path = filepath.Join(r.dir, "overlay.json")
	return path, os.WriteFile(path, text, 0o600)
}
