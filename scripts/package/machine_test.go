package install

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/bench/topo"
)

// machine is a container in which systemd runs as process 1, on a copy-on-write view of this computer's files and in
// the network namespace of host.
type machine struct {
	t    *testing.T
	host *topo.Host
	root string // path of its root directory on this computer
	pid  int    // process ID of its process 1 on this computer
}

// newMachine boots a machine, which ends with the test, and copies the test binary into it.
func newMachine(t *testing.T, h *topo.Host) *machine {
	t.Helper()
	m := &machine{t: t, host: h}
	c := exec.Command("/proc/self/exe", t.TempDir())
	c.Env = append(os.Environ(), roleEnv+"=machine")
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC |
			syscall.CLONE_NEWUTS | unix.CLONE_NEWCGROUP}
	m.begin(c, "ready")
	t.Cleanup(func() { c.Process.Kill() }) // the kernel then kills all processes of the PID namespace
	m.pid = c.Process.Pid
	m.root = fmt.Sprintf("/proc/%d/root", m.pid)
	m.await("the boot", func() string {
		out, _ := m.command("/usr/bin/systemctl", "is-system-running").CombinedOutput()
		switch state := strings.TrimSpace(string(out)); state {
		case "running", "degraded": // degraded: a unit that xwarpd does not need has failed
			return ""
		default:
			return state
		}
	})
	m.copy("/proc/self/exe", "usr/local/bin/install-test", 0o755)
	if !mayUnlimit() {
		m.dropIn("memlock", "CapabilityBoundingSet=CAP_IPC_LOCK\nAmbientCapabilities=CAP_IPC_LOCK\n")
	}
	return m
}

// mayUnlimit reports whether root on this computer may give a service LimitMEMLOCK=infinity. In some containers it may
// not; CAP_IPC_LOCK then has the same effect for the service.
func mayUnlimit() bool {
	var was unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &was) != nil {
		return false
	}
	err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: was.Cur, Max: unix.RLIM_INFINITY})
	return err == nil
}

// dropIn adds lines to the [Service] section of xwarpd's unit, as systemctl edit does.
func (m *machine) dropIn(name, lines string) {
	m.t.Helper()
	m.write("etc/systemd/system/xwarpd.service.d/"+name+".conf", "[Service]\n"+lines)
	m.run("/usr/bin/systemctl", "daemon-reload")
}

// await repeats f until it returns "". After a minute it fails the test with the last result of f.
func (m *machine) await(what string, f func() string) {
	m.t.Helper()
	last := ""
	for range 1200 {
		if last = f(); last == "" {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	m.t.Fatalf("waiting for %s: %s\n%s", what, last, m.journal())
}

// journal returns the last lines of the machine's journal.
func (m *machine) journal() string {
	out, err := m.command("/usr/bin/journalctl", "--no-pager", "-n", "100", "-o",
		"cat").CombinedOutput()
	return fmt.Sprintf("%s%v", out, errors.Join(err))
}

// begin starts a process that ends when its standard input ends, and waits until it prints the line want. The process
// ends with the test.
func (m *machine) begin(c *exec.Cmd, want string) {
	m.t.Helper()
	in, err := c.StdinPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	c.Stderr = m.t.Output()
	if err := m.host.Start(c); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { in.Close(); c.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); strings.TrimSpace(line) != want {
		m.t.Fatalf("%v says %q, %v; want %q", c.Args, line, err, want)
	}
}

func (m *machine) copy(from, to string, mode os.FileMode) {
	m.t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(filepath.Join(m.root, to), b, mode)
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) write(path, text string) {
	m.t.Helper()
	path = filepath.Join(m.root, path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
		os.WriteFile(path, []byte(text), 0o644)); err != nil {
		m.t.Fatal(err)
	}
}

// edit replaces the first old by new in a file of the machine. The test fails if the file has no old.
func (m *machine) edit(path, old, new string) {
	m.t.Helper()
	b, err := os.ReadFile(filepath.Join(m.root, path))
	if err != nil {
		m.t.Fatal(err)
	}
	text := strings.Replace(string(b), old, new, 1)
	if text == string(b) {
		m.t.Fatalf("%s has no %q", path, old)
	}
	m.write(path, text)
}

// command returns a command that runs in the machine as root.
func (m *machine) command(name string, args ...string) *exec.Cmd {
	c := exec.Command("nsenter", append([]string{"--target", fmt.Sprint(m.pid), "--all", "--wd=/",
		"--", name}, args...)...)
	c.Env = []string{"PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8"}
	return c
}

// try runs a command in the machine and returns its output and its exit status.
func (m *machine) try(name string, args ...string) (string, int) {
	m.t.Helper()
	c := m.command(name, args...)
	out, err := c.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		m.t.Fatalf("%s: %v", name, err)
	}
	return string(out), c.ProcessState.ExitCode()
}

// run runs a command in the machine and returns its output. The test fails if the command does.
func (m *machine) run(name string, args ...string) string {
	m.t.Helper()
	var out, errs bytes.Buffer
	c := m.command(name, args...)
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil {
		m.t.Fatalf("%s %v: %v\n%s%s\n%s", name, args, err, out.String(), errs.String(), m.journal())
	}
	return out.String()
}

func (m *machine) exists(path string) bool {
	_, err := os.Lstat(filepath.Join(m.root, path))
	return err == nil
}
