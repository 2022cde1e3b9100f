package daemon_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"xwarp/bench/topo"
	"xwarp/ddp/rdmap"
	"xwarp/engine/daemon"
	"xwarp/engine/daemon/client"
	"xwarp/engine/daemon/control"
	"xwarp/engine/sockets"
	"xwarp/engine/testkit/stress"
	"xwarp/engine/verbs"
)

// workerThreads is a log handler that finds the threads of workers: workers log, and the handler runs on the thread
// that logs. A worker on kernel sockets is a goroutine, so the handler locks it to its thread.
type workerThreads struct {
	slog.Handler
	all *sync.Map // set of thread IDs
}

func (w workerThreads) Enabled(context.Context, slog.Level) bool { return true }

func (w workerThreads) WithAttrs([]slog.Attr) slog.Handler { return w }

func (w workerThreads) Handle(_ context.Context, r slog.Record) error {
	stack := string(debug.Stack())
	if strings.Contains(stack, ".(*thread).turnLoop") ||
		strings.Contains(stack, ".(*worker).workLoop") {
		if _, known := w.all.LoadOrStore(unix.Gettid(), true); !known {
			runtime.LockOSThread()
		}
	}
	return nil
}

// The system calls of workers, as strace prints them. SECURITY.md lists them with the parties that can make each slow.
var (
	// runtimeCalls are those of the Go runtime, and of the notifier, which writes an eventfd.
	runtimeCalls = []string{
		`futex\(0x[0-9a-f]+, FUTEX_(WAKE|WAIT)_PRIVATE, `, `(nanosleep|restart_syscall)\(`, `sched_yield\(`,
		`rt_sig(return|procmask)\(`, `--- SIGURG `, `tgkill\(`, `getpid\(`,
		`(mmap|munmap|madvise|prctl)\(`, `getrandom\(`, `epoll_pwait\(\d+<anon_inode:\[eventpoll\]>`,
		`write\(\d+<anon_inode:\[eventfd\]>, `,
		`gettid\(`, // of this test
	}
	xdpCalls = []string{
		`sendto\(\d+<socket:\[\d+\]>, NULL, 0, MSG_DONTWAIT, NULL, 0\)`,
		`sendto\(\d+<socket:\[\d+\]>, ".*"(\.\.\.)?, \d+, MSG_DONTWAIT, NULL, 0\)`, // a block of segments
		`recvfrom\(\d+<socket:\[\d+\]>, NULL, 0, MSG_DONTWAIT, NULL, NULL\)`,
		`bpf\(BPF_PROG_TEST_RUN, `, `bpf\(BPF_MAP_(UPDATE|DELETE|LOOKUP)_ELEM, `,
		`ppoll\(\[\{fd=\d+<socket:\[\d+\]>`, `read\(\d+<anon_inode:\[eventfd\]>, `,
		`getsockopt\(\d+<socket:\[\d+\]>, SOL_XDP, XDP_STATISTICS, `,
	}
	socketsCalls = []string{
		`sendmsg\(\d+<(TCP|socket):\[.*MSG_DONTWAIT`, `recvfrom\(\d+<(TCP|socket):\[.*MSG_DONTWAIT`,
		`epoll_ctl\(\d+<anon_inode:\[eventpoll\]>`,
		`[gs]etsockopt\(\d+<(TCP|socket):\[`, `shutdown\(\d+<(TCP|socket):\[`, `close\(\d+<(TCP|socket):\[`,
	}
)

// TestSystemCallsOfWorkers: under a mixed load a worker makes only the system calls that are listed here, none of them
// on an object of a program.
func TestSystemCallsOfWorkers(t *testing.T) {
	if _, err := exec.LookPath("strace"); err != nil {
		t.Fatalf("%v (make setup installs strace)", err)
	}
	t.Run("xdp", func(t *testing.T) {
		tn := hosts(t)
		testWorkerCalls(t, tn, ethTable, tn.A.Addr4.Addr(), embedded(t, tn.B.Do),
			xdpCalls)
	})
	t.Run("kernel", func(t *testing.T) {
		far, err := sockets.Open(sockets.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer far.Close()
		testWorkerCalls(t, nil, "[[interface]]\nname = \"lo\"\ntransport = \"kernel\"\n",
			netip.MustParseAddr("127.0.0.1"), far, socketsCalls)
	})
}

// testWorkerCalls traces the workers of a daemon under load from another device. The daemon runs on net.A, or on this
// host if net is nil, and at is an address there.
func testWorkerCalls(t *testing.T, net *topo.Net, text string, at netip.Addr,
	far verbs.Device, allowed []string) {
	cfg, socket := load(t, text)
	var threads sync.Map
	var d *daemon.Daemon
	do := here
	if net != nil {
		do = net.A.Do
	}
	if err := do(func() (err error) {
		d, err = daemon.New(cfg, daemon.Options{
			Log: slog.New(workerThreads{slog.DiscardHandler, &threads})})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	dev, err := client.Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	work := func(seed uint64, lines int) {
		t.Helper()
		if err := stress.Run(stress.Config{Seed: seed, A: far, B: dev,
			At: netip.AddrPortFrom(at, 0), Lines: lines, Each: 4}); err != nil {
			t.Error(err)
		}
	}
	work(1, 4) // so that each worker logs
	sleeper := newSleeper(t, socket, farListener(t, far, net))
	var end []func() []string
	threads.Range(func(tid, _ any) bool {
		end = append(end, trace(t, tid.(int)))
		return true
	})
	for i := range 4 {
		sleeper.complete(t)
		work(uint64(2+i), 4)
		d.Snapshot()
	}
	var calls []string
	for _, f := range end {
		calls = append(calls, f()...)
	}
	if len(end) == 0 || len(calls) < 100 {
		t.Fatalf("%d workers made %d system calls: they were not traced", len(end), len(calls))
	}
	permitted := regexp.MustCompile(`^(` + strings.Join(slices.Concat(runtimeCalls, allowed), "|") + `)`)
	for _, line := range calls {
		if !permitted.MatchString(line) {
			t.Errorf("a worker called %s", line)
		}
	}
}

// trace starts strace for a thread of this process. end stops it and returns the lines of the system calls.
func trace(t *testing.T, tid int) (end func() []string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "calls")
	c := exec.Command("strace", "-e", "signal=none", "-y", "-qq", "-o", file, "-p",
		strconv.Itoa(tid))
	c.Stderr = t.Output()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	status := fmt.Sprintf("/proc/self/task/%d/status", tid)
	if _, ok := eventually(func() bool {
		b, err := os.ReadFile(status)
		return err != nil || !bytes.Contains(b, []byte("TracerPid:\t0\n"))
	}); !ok {
		t.Error("strace does not attach")
	}
	return func() []string {
		c.Process.Signal(unix.SIGINT) // it detaches
		c.Wait()
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(string(b)), "\n")
		return slices.DeleteFunc(lines, func(line string) bool {
			return strings.HasPrefix(line, "strace: ")
		})
	}
}

// farListener returns the address of a listener of far that accepts one connection.
func farListener(t *testing.T, far verbs.Device, net *topo.Net) netip.AddrPort {
	t.Helper()
	to := freePort(t)
	if net != nil {
		to = netip.AddrPortFrom(net.B.Addr4.Addr(), 7174)
	}
	responder(t, far, to, 1)
	return to
}

// sleeper is a program that sleeps on the ring of its completion queue and on its channel at the same time.
type sleeper struct{ *spun }

func newSleeper(t *testing.T, socket string, at netip.AddrPort) sleeper {
	t.Helper()
	f, err := newFoe(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.sock.Close() })
	var pd control.Object
	if _, err := f.ask(control.OpAllocPD, nil, &pd); err != nil {
		t.Fatal(err)
	}
	s, err := newSpun(f, pd.Handle, at, 16)
	if err != nil {
		t.Fatal(err)
	}
	s.put(&rdmap.SendWR{Op: rdmap.WRWrite, Flags: rdmap.Signaled, RemoteSTag: 1}) // a Write without data
	return sleeper{s}
}

// complete makes a worker complete requests while the program sleeps.
func (s sleeper) complete(t *testing.T) {
	t.Helper()
	const armedAt, waitsAt = 128, 136
	waits := word(s.cq, s.done.Offset+waitsAt)
	control.Arm(waits)
	control.Arm(word(s.cq, s.done.Offset+armedAt))
	s.turn()
	if _, ok := eventually(func() bool { return atomic.LoadUint32(waits) == 0 }); !ok {
		t.Error("the worker does not see that the program sleeps")
	}
}
