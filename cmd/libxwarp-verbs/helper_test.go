package libxwarpverbs_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"xwarp/bench/topo"
	"xwarp/bpf/needs"
	"xwarp/engine/daemon"
	"xwarp/engine/daemon/config"
	"xwarp/engine/daemon/control"
)

// nobody is the user of the programs, which need no privilege.
const nobody = 65534

var dir string // for files of the tests; every user may enter it

func TestMain(m *testing.M) {
	if path := os.Getenv(daemonOf); path != "" {
		if err := runDaemon(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	var err error
	if dir, err = os.MkdirTemp("", "xwarp-verbs"); err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

var builds sync.Map // by name and flags: functions that return the path of a file, which they build once

// build returns the path of a file that command builds, in its own directory. Tests with the same flags share it.
func build(t testing.TB, name string, flags []string, command func(path string) *exec.Cmd) string {
	t.Helper()
	once := sync.OnceValues(func() (path string, err error) {
		d, err := os.MkdirTemp(dir, "build")
		if err != nil {
			return "", err
		}
		path = filepath.Join(d, name)
		if out, err := command(path).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%w\n%s", err, out)
		}
		return path, errors.Join(os.Chmod(d, 0o755), os.Chmod(path, 0o755))
	})
	f, _ := builds.LoadOrStore(fmt.Sprintf("%s %q", name, flags), once)
	path, err := f.(func() (string, error))()
	if err != nil {
		t.Fatalf("no %s (scripts/setup.sh test installs what it needs): %v", name, err)
	}
	return path
}

// library builds the library. flags are passed to the compiler.
func library(t testing.TB, flags ...string) string {
	t.Helper()
	return build(t, "libxwarp-verbs.so", flags, func(path string) *exec.Cmd {
		return exec.Command("./build.sh", append([]string{path}, flags...)...)
	})
}

// end is a host of a test, with a daemon and programs that use it.
type end struct {
	host    *topo.Host
	daemon  *daemon.Daemon
	socket  string
	library string
	addr    string // IPv4
	addr6   string
	env     []string // of programs
}

// values returns the counters of one part of the daemon's device, such as rdma or tcp.
func (e *end) values(part string) map[string]uint64 {
	s := e.daemon.Snapshot()
	return s.Statistics.Values(s.Devices[0].Name, part)
}

// pair creates two hosts, each with a daemon. Tests with their own hosts run in parallel.
func pair(t *testing.T) (a, b *end) { return pairOn(t, "xdp") }

// pairOn is pair with the given transport of the daemons.
func pairOn(t *testing.T, transport string) (a, b *end) {
	t.Helper()
	needs.XSK(t)
	needs.NetNS(t)
	t.Parallel()
	tn, err := topo.New(topo.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tn.Close() })
	return newEnd(t, tn.A, transport), newEnd(t, tn.B, transport)
}

func newEnd(t testing.TB, h *topo.Host, transport string) *end {
	t.Helper()
	e := &end{
		host: h, library: library(t), addr: h.Addr4.Addr().String(), addr6: h.Addr6.Addr().String(),
	}
	run, err := os.MkdirTemp(dir, "xwarpd")
	if err != nil {
		t.Fatal(err)
	}
	os.Chmod(run, 0o755)
	e.socket = filepath.Join(run, "s")
	path := filepath.Join(run, "xwarp.toml")
	text := fmt.Sprintf("[daemon]\nsocket = %q\nsocket_mode = \"0666\"\ngrace = \"1s\"\n"+
		"[[interface]]\nname = \"eth0\"\ntransport = %q\n", e.socket, transport)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	e.up(t, path)
	return e
}

// up starts the daemon.
func (e *end) up(t testing.TB, path string) {
	t.Helper()
	cfg, err := config.Load(config.Source{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	err = e.host.Do(func() (err error) {
		e.daemon, err = daemon.New(cfg, daemon.Options{Log: log})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	d := e.daemon
	t.Cleanup(func() { d.Close() })
}

// program is a started program.
type program struct {
	*exec.Cmd
	line string
	out  lockedBuffer
	done chan struct{}
	err  error
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// do runs f in the namespace of e, on a thread that lives as long as f. If e has no namespace, f runs in that of the
// test.
func (e *end) do(f func() error) error {
	if e.host != nil {
		return e.host.Do(f)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return f()
}

// start starts the program of line over the library. @ in line is the address of the other end, % its IPv6 address.
func (e *end) start(t testing.TB, line string, peer *end) *program {
	t.Helper()
	return e.startWords(t, strings.Fields(line), peer)
}

// patience is the timeout of steps that take seconds on an idle machine, and much longer on a loaded one.
const patience = 3 * time.Minute

// startWords is start for a program whose arguments contain spaces.
func (e *end) startWords(t testing.TB, words []string, peer *end) *program {
	t.Helper()
	p := &program{line: strings.Join(words, " "), done: make(chan struct{})}
	address := strings.NewReplacer("@", peer.addr, "%", peer.addr6)
	for i, w := range words {
		words[i] = address.Replace(w)
	}
	p.Cmd = exec.Command(words[0], words[1:]...)
	p.Dir = "/"
	p.Env = append(append(os.Environ(), e.env...),
		"LD_PRELOAD="+e.library, "XWARP_SOCKET="+e.socket)
	p.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: nobody, Gid: nobody}, Pdeathsig: syscall.SIGKILL,
	}
	p.Stdout, p.Stderr = &p.out, &p.out
	p.WaitDelay = time.Second // processes that it leaves behind may keep its output open
	started := make(chan error)
	go func() { // Pdeathsig kills the program when the thread that starts it ends
		e.do(func() error {
			err := p.Start()
			started <- err
			if err == nil {
				p.err = p.Wait()
			}
			return nil
		})
		close(p.done)
	}()
	if err := <-started; err != nil {
		t.Fatalf("%v (scripts/setup.sh test installs the programs)", err)
	}
	t.Cleanup(func() {
		left := children(p.Process.Pid)
		p.Process.Kill()
		<-p.done
		for _, pid := range left { // such as the server of fio, which is in a session of its own
			syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	return p
}

// children returns the processes that a process has forked, and those that these have forked.
func children(pid int) (pids []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, path := range lists {
		text, _ := os.ReadFile(path)
		for _, word := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(word); err == nil {
				pids = append(append(pids, child), children(child)...)
			}
		}
	}
	return pids
}

// end waits for the exit of a program and returns its output.
func (p *program) end(t testing.TB) string {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		t.Fatalf("%s does not end:\n%s", p.line, p.out.String())
	}
	return p.out.String()
}

// wait waits for the successful exit of a program and returns its output.
func (p *program) wait(t testing.TB) string {
	t.Helper()
	out := p.end(t)
	if p.err != nil {
		t.Errorf("%s: %v\n%s", p.line, p.err, out)
	}
	return out
}

// listening waits until a program of e listens on an address that other hosts can reach. A wildcard listener opens the
// addresses of lo first.
func (e *end) listening(t testing.TB, p *program) {
	t.Helper()
	e.until(t, p, "listens", func() bool {
		return slices.ContainsFunc(e.daemon.Snapshot().Listeners,
			func(l control.ListenerState) bool { return !l.Addr.Addr().IsLoopback() })
	})
}

// wait waits until gone reports true for the snapshot of e's daemon.
func (e *end) wait(t testing.TB, what string, gone func(control.Snapshot) bool) {
	t.Helper()
	for stop := time.Now().Add(patience); !gone(e.daemon.Snapshot()); {
		if time.Now().After(stop) {
			t.Fatalf("%s: %+v", what, e.daemon.Snapshot())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (e *end) until(t testing.TB, p *program, what string, ok func() bool) {
	t.Helper()
	for stop := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		select {
		case <-p.done:
			t.Fatalf("%s ended before it %s: %v\n%s", p.line, what, p.err, p.out.String())
		default:
		}
		if time.Now().After(stop) {
			t.Fatalf("%s never %s:\n%s", p.line, what, p.out.String())
		}
	}
}
