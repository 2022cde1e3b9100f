// Command mutate asks how much of the protocols the tests hold: it changes one condition, comparison, constant, sign
// or returned value at a time and has the tests run. A change that no test notices, a survivor, is printed and makes
// the command fail, unless equivalent.txt says why no test can notice it. The same seed makes the same changes.
//
//	go run ./scripts/mutate [-count N] [-seed N] [PACKAGE...]
//
// The quick tests of the changed package run first, then all of the packages beside and above it too
// (./tcp/... for xwarp/tcp/loss), then those of what is built on it: packet scripts, the stack, the
// simulator. limits.go is left alone: tests hold the code to its names, not to the values. Nothing in the
// repository is written: go test takes the changed file as an overlay.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("mutate: ")
	count := flag.Int("count", 200, "`changes` to test; those that do not compile are none")
	seed := flag.Uint64("seed", 1, "of the choice")
	timeout := flag.Duration("timeout", 3*time.Minute,
		"for the tests of one change; to be beyond it is to be noticed")
	from := flag.Int("from", 0, "leave out so many `changes`: what an earlier run tested")
	only := flag.String("only", "", "only changes in this `file:line`, all of them")
	flag.Parse()
	patterns := flag.Args()
	if len(patterns) == 0 {
		patterns = []string{"./tcp/...", "./mpa/...", "./ddp/..."}
	}
	r := &runner{timeout: *timeout}
	if err := r.run(patterns, *from, *count, *seed, *only); err != nil {
		log.Fatal(err)
	}
}

// runner tests changes one after the other.
type runner struct {
	timeout time.Duration
	dir     string // for changed files

	tested, noticed, explained, survived, broken int
}

func (r *runner) run(patterns []string, from, count int, seed uint64, only string) (err error) {
	if r.dir, err = os.MkdirTemp("", "mutate"); err != nil {
		return err
	}
	defer os.RemoveAll(r.dir)
	changes, err := enumerate(patterns)
	if err != nil {
		return err
	}
	explained, err := readEquivalent("scripts/mutate/equivalent.txt", changes)
	if err != nil {
		return err
	}
	fmt.Printf("%d possible changes, seed %d\n", len(changes), seed)
	if err := r.unchanged(patterns); err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(seed, 0))
	for n, i := range random.Perm(len(changes)) {
		c := changes[i]
		if n < from {
			continue
		}
		if only != "" && fmt.Sprintf("%s:%d", c.file, c.line) != only {
			continue
		}
		if r.tested == count {
			break
		}
		if err := r.test(c, explained[c.key()]); err != nil {
			return err
		}
		if r.tested%10 == 0 {
			fmt.Printf("%d tested, %d survived, %d explained; go on: -from %d\n", r.tested,
				r.survived, r.explained, n+1)
		}
	}
	fmt.Printf("%d changes: %d noticed (%.1f %%), %d explained, %d survived; %d more did not "+
		"compile\n",
		r.tested, r.noticed, 100*float64(r.noticed)/float64(max(1, r.tested)), r.explained,
		r.survived,
		r.broken)
	if r.survived > 0 {
		return errors.New("write a test for each survivor, or its reason into equivalent.txt")
	}
	return nil
}

// unchanged has the tests pass before anything is changed: else they would notice everything.
func (r *runner) unchanged(patterns []string) error {
	for _, packages := range append([][]string{patterns}, slices.Collect(maps.Values(users))...) {
		if r.gotest("", append([]string{"-short"}, packages...)...) != passed {
			return fmt.Errorf("the tests of %s fail without a change: go test %s",
				strings.Join(packages, ", "), strings.Join(packages, " "))
		}
	}
	return nil
}

// test makes one change; why explains that nobody can notice it.
func (r *runner) test(c *change, why string) error {
	overlay, err := r.overlay(c)
	if err != nil {
		return err
	}
	tree, _, _ := strings.Cut(strings.TrimPrefix(c.pkg, module), "/")
	begin := time.Now()
	result := r.gotest(overlay, "-short", "-skip", slow, c.pkg)
	if result == passed && why == "" {
		result = r.gotest(overlay, "./"+tree+"/...")
	}
	if result == passed && why == "" {
		result = r.gotest(overlay, append([]string{"-short"}, users[tree]...)...)
	}
	switch result {
	case noBuild:
		r.broken++
		return nil
	case failed:
		r.noticed++
	case passed:
		if why != "" {
			r.explained++
			break
		}
		r.survived++
		fmt.Printf("%s:%d: %s -> %s survived %.0f s of tests; for equivalent.txt:\n%s\n", c.file,
			c.line,
			c.before, c.after, time.Since(begin).Seconds(), c.key())
	}
	r.tested++
	return nil
}

// overlay writes the changed file and what go test wants to know about it.
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

// outcome is what tests said.
type outcome int

const (
	passed outcome = iota
	failed
	noBuild
)

// slow are the tests that take most of the time. They run for what the others do not notice.
const slow = "SmallWorlds|FirstSteps|AnyOrder"

// users are the packages with tests of what is built on each tree.
var users = map[string][]string{
	"tcp": {"./engine/testkit/script", "./engine/stack", "./engine/bytestream/...",
		"./engine/testkit/sim"},
	"mpa": {"./ddp/...", "./engine/iwarp", "./engine/testkit/sim"},
	"ddp": {"./engine/iwarp", "./engine/testkit/sim"},
}

// gotest runs tests; args are flags and packages.
func (r *runner) gotest(overlay string, args ...string) outcome {
	ctx, cancel := context.WithTimeout(context.Background(), r.timeout+time.Minute) // and the build
	defer cancel()
	// A changed loop may take memory without end; the group of processes goes with the first of them.
	if overlay != "" {
		args = append([]string{"-overlay", overlay}, args...)
	}
	args = append([]string{"-c", `ulimit -v 8000000; exec "$@"`, "sh", "go", "test", "-vet=off",
		"-count=1", "-failfast", "-timeout", r.timeout.String()}, args...)
	cmd := exec.CommandContext(ctx, "sh", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	switch {
	case err == nil:
		return passed
	case bytes.Contains(out.Bytes(), []byte("[build failed]")):
		return noBuild
	}
	return failed
}
