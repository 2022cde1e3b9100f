package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// outcome is what tests said.
type outcome int

const (
	passed outcome = iota
	failed
	noBuild
	undecided // too late on the wall, or the tests did not run at all
)

// The tests that take seconds, and those that take most of the time, run for what the others do not notice.
const (
	slow = "Kernel|ProbesOfMany|SegmentSmack|TransferImpaired|RandomOps|Goodput|Paths|TwoBitFlips|" +
		"HostileStream|Corruption|TestPut|RandomPrograms|Footprint"
	slowest = "SmallWorlds|MergedWorlds|FirstSteps|AnyOrder"
	foreign = "TestLinux" // it measures the kernel's TCP, and depends on the load of this machine
)

// users are the packages with tests of what is built on each tree.
var users = map[string][]string{
	"tcp": {"./engine/testkit/script", "./engine/stack", "./engine/bytestream/...",
		"./engine/testkit/sim"},
	"mpa": {"./ddp/...", "./engine/iwarp", "./engine/testkit/sim"},
	"ddp": {"./engine/iwarp", "./engine/testkit/sim"},
}

// firstFailure ends what it listens to as soon as one package failed.
type firstFailure struct {
	out bytes.Buffer
	end func()
}

var failure = regexp.MustCompile(`(?m)^FAIL\s`)

func (f *firstFailure) Write(b []byte) (int, error) {
	f.out.Write(b)
	if failure.Match(f.out.Bytes()) {
		f.end()
	}
	return len(b), nil
}

// gotest runs tests; args are flags and packages. The tests of a package that a change does not reach passed before,
// which go test knows. cpu limits each process; by is what failed.
func (r *runner) gotest(overlay string, cpu time.Duration, args ...string) (result outcome,
	by string) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if overlay != "" {
		args = append([]string{"-overlay", overlay}, args...)
	}
	// A changed loop may take time or memory without end; the limits are each process's own. The group of processes
	// goes with the first failure.
	limits := fmt.Sprintf(`ulimit -t %.0f; ulimit -v 8000000; exec "$@"`, cpu.Seconds())
	args = append([]string{"-c", limits, "sh", "go", "test", "-vet=off", "-failfast",
		"-timeout", r.timeout.String()}, args...)
	cmd := exec.CommandContext(ctx, "sh", args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+r.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	f := &firstFailure{end: cancel}
	cmd.Stdout, cmd.Stderr = f, f
	if cmd.Run() == nil {
		return passed, ""
	}
	return parseOutcome(f.out.String())
}

var (
	causes = regexp.MustCompile(`(?m)^\s*--- FAIL: \S+|^panic: .*|^fatal error: .*|^signal: .*|` +
		`^FAIL\s.*`)
	notBuilt = regexp.MustCompile(`(?m)^FAIL\s.*\[build failed\]`)
	timedOut = regexp.MustCompile(`(?m)^panic: test timed out`)
)

// parseOutcome tells from the output of a go test that failed why it did.
func parseOutcome(out string) (result outcome, by string) {
	by = strings.TrimSpace(causes.FindString(out))
	by = strings.TrimPrefix(by, "--- FAIL: ")
	switch {
	case notBuilt.MatchString(out):
		return noBuild, by
	case by == "":
		return undecided, "go test: " + strings.TrimSpace(out)
	case timedOut.MatchString(out):
		return undecided, "the wall's clock"
	}
	return failed, by
}
