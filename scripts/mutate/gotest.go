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

// outcome is the result of a test run.
type outcome int

const (
	passed outcome = iota
	failed
	noBuild
	undecided // wall-clock timeout, or the tests did not run
)

// Slow tests run only for changes that the quick tests do not detect, and the slowest tests last.
const (
	slow = "Kernel|ProbesOfMany|SegmentSmack|TransferImpaired|RandomOps|Goodput|Paths|TwoBitFlips|" +
		"HostileStream|Corruption|TestPut|RandomPrograms|Footprint"
	slowest = "SmallWorlds|MergedWorlds|FirstSteps|AnyOrder"
	foreign = "TestLinux" // measures the kernel's TCP, and depends on the machine's load
)

// users lists the packages that test the users of each tree.
var users = map[string][]string{
	"tcp": {"./engine/testkit/script", "./engine/stack", "./engine/bytestream/...",
		"./engine/testkit/sim"},
	"mpa": {"./ddp/...", "./engine/iwarp", "./engine/testkit/sim"},
	"ddp": {"./engine/iwarp", "./engine/testkit/sim"},
}

// firstFailure ends the test run as soon as one package has failed.
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

// gotest runs tests; args are flags and packages. For packages that a change does not reach, go test uses cached
// results. cpu limits each process; by is the test that failed.
func (r *runner) gotest(overlay string, cpu time.Duration, args ...string) (result outcome,
	by string) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if overlay != "" {
		args = append([]string{"-overlay", overlay}, args...)
	}
	// A changed loop may use unbounded time or memory; the limits apply to each process. The first failure ends the
	// process group.
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

// parseOutcome finds the reason of a failure in the output of go test.
func parseOutcome(out string) (result outcome, by string) {
	by = strings.TrimSpace(causes.FindString(out))
	by = strings.TrimPrefix(by, "--- FAIL: ")
	switch {
	case notBuilt.MatchString(out):
		return noBuild, by
	case by == "":
		return undecided, "go test: " + strings.TrimSpace(out)
	case timedOut.MatchString(out):
		return undecided, "wall-clock timeout"
	}
	return failed, by
}
