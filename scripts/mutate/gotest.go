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
	undecided // the wall-clock time was exceeded, or the tests did not run
)

// Patterns of tests that are not quick. Those of slow run only for changes that the quick tests do not detect, and
// those of slowest only if these do not detect them either.
const (
	slow = "Kernel|ProbesOfMany|SegmentSmack|TransferImpaired|RandomOps|Goodput|Paths|TwoBitFlips|" +
		"HostileStream|Corruption|TestPut|RandomPrograms|Footprint"
	slowest = "SmallWorlds|MergedWorlds|FirstSteps|AnyOrder"
	foreign = "TestLinux" // measures the kernel's TCP; its result depends on the machine's load
)

// users has, for each tree of protocols, the packages whose tests use that tree.
var users = map[string][]string{
	"tcp": {"./engine/testkit/script", "./engine/stack", "./engine/bytestream/...",
		"./engine/testkit/sim"},
	"mpa": {"./ddp/...", "./engine/iwarp", "./engine/testkit/sim"},
	"ddp": {"./engine/iwarp", "./engine/testkit/sim"},
}

// stopAtFailure takes the output of go test and calls end when a package has failed.
type stopAtFailure struct {
	out bytes.Buffer
	end func()
}

var failure = regexp.MustCompile(`(?m)^FAIL\s`)

func (f *stopAtFailure) Write(b []byte) (int, error) {
	f.out.Write(b)
	if failure.Match(f.out.Bytes()) {
		f.end()
	}
	return len(b), nil
}

// gotest runs go test with args, which are flags and packages, and with an overlay unless that is empty. For packages
// that the change does not affect, go test uses cached results. cpu is the limit of processor time of each process. by
// is the test that failed, or another reason.
func (r *runner) gotest(overlay string, cpu time.Duration, args ...string) (result outcome,
	by string) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if overlay != "" {
		args = append([]string{"-overlay", overlay}, args...)
	}
	// A changed loop may use time or memory without end, so each process has limits. The first failure kills the
	// process group.
	limits := fmt.Sprintf(`ulimit -t %.0f; ulimit -v 8000000; exec "$@"`, cpu.Seconds())
	args = append([]string{"-c", limits, "sh", "go", "test", "-vet=off", "-failfast",
		"-timeout", r.timeout.String()}, args...)
	cmd := exec.CommandContext(ctx, "sh", args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+r.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	f := &stopAtFailure{end: cancel}
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

// parseOutcome returns the result of a go test that did not pass, and its first cause, by its output.
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
