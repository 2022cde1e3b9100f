package daemon_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netns"

	"xwarp/bench/topo"
	"xwarp/bpf/needs"
	"xwarp/engine/daemon"
	"xwarp/engine/daemon/client"
	"xwarp/engine/daemon/config"
	"xwarp/engine/verbs"
)

// roleEnv names the role that the test binary plays as another process, instead of running tests. argsEnv has the
// arguments of the role.
const (
	roleEnv = "XWARP_TEST_ROLE"
	argsEnv = "XWARP_TEST_ARGS"
)

var roles = map[string]func(args []string) error{"daemon": daemonRole, "transfer": transferRole,
	"here": hereRole, "load": loadRole, "capture": captureRole, "confirm": confirmRole,
	"fill": fillRole, "greedy": greedyRole, "store": storeRole}

func TestMain(m *testing.M) {
	flag.Parse()
	role := roles[os.Getenv(roleEnv)]
	if role == nil {
		os.Exit(m.Run())
	}
	if err := role(strings.Split(os.Getenv(argsEnv), "\n")); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// child is another process, which plays a role.
type child struct {
	*exec.Cmd
	out *bufio.Reader
}

// start starts exe, a test binary, in a role. uid is that of an unprivileged user, or 0.
func start(t testing.TB, exe string, uid uint32, role string, args ...string) *child {
	t.Helper()
	c := &child{Cmd: exec.Command(exe)}
	c.Env = append(os.Environ(), roleEnv+"="+role, argsEnv+"="+strings.Join(args, "\n"))
	c.SysProcAttr = &syscall.SysProcAttr{}
	if uid != 0 {
		c.SysProcAttr.Credential = &syscall.Credential{Uid: uid, Gid: uid}
	}
	c.Stderr = t.Output()
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewReader(out)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.kill() })
	return c
}

// line returns the next line of the child's output.
func (c *child) line() string {
	s, err := c.out.ReadString('\n')
	if err != nil {
		return s + err.Error()
	}
	return strings.TrimSuffix(s, "\n")
}

func (c *child) kill() {
	c.Process.Kill()
	c.Wait()
}

// publicExe returns the path of a copy of the test binary that every user may run.
func publicExe(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "xwarp-daemon-test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	os.Chmod(dir, 0o755)
	in, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	path := filepath.Join(dir, "test")
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(out, in)
	if e := out.Close(); err != nil || e != nil {
		t.Fatal(err, e)
	}
	return path
}

// writeConfig writes a configuration in a directory that every user may enter.
func writeConfig(t testing.TB, text string) (path, socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "xwarpd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	os.Chmod(dir, 0o755)
	path, socket = filepath.Join(dir, "xwarp.toml"), filepath.Join(dir, "s")
	text = fmt.Sprintf("[daemon]\nsocket = %q\nsocket_mode = \"0666\"\ngrace = \"1s\"\n%s", socket,
		text)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path, socket
}

func load(t testing.TB, text string) (*config.Loaded, string) {
	t.Helper()
	path, socket := writeConfig(t, text)
	cfg, err := config.Load(config.Source{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	return cfg, socket
}

// ethTable is the [[interface]] of every host of a test.
const ethTable = "[[interface]]\nname = \"eth0\"\n"

// hosts creates two hosts, which exist until the test ends. options replaces the default options of the pair.
func hosts(t testing.TB, options ...topo.Options) *topo.Net {
	t.Helper()
	needs.XSK(t)
	needs.NetNS(t)
	tn, err := topo.New(append(options, topo.Options{})[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tn.Close() })
	return tn
}

// run starts a daemon in this process on a host.
func run(t testing.TB, h *topo.Host, text string) (d *daemon.Daemon, socket string) {
	t.Helper()
	cfg, socket := load(t, text)
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	if err := h.Do(func() (err error) {
		d, err = daemon.New(cfg, daemon.Options{Log: log})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d, socket
}

// patience is the timeout of steps that take moments on an idle machine, and much longer on a loaded one.
const patience = 2 * time.Minute

// eventually waits for a condition within patience.
func eventually(ok func() bool) (time.Duration, bool) { return within(patience, ok) }

// within waits for a condition, at most for the time most. It returns the time passed, and whether the condition holds.
func within(most time.Duration, ok func() bool) (time.Duration, bool) {
	begin := time.Now()
	for time.Since(begin) < most {
		if ok() {
			return time.Since(begin), true
		}
		time.Sleep(5 * time.Millisecond)
	}
	return time.Since(begin), ok()
}

// loadIn moves the process to a namespace, given by its path, and loads a configuration there.
func loadIn(namespace, path string) (*config.Loaded, error) {
	runtime.LockOSThread()
	ns, err := netns.GetFromPath(namespace)
	if err != nil {
		return nil, err
	}
	if err := netns.Set(ns); err != nil {
		return nil, err
	}
	return config.Load(config.Source{Path: path})
}

// daemonRole runs a daemon. Its arguments: the path of its namespace, the configuration.
func daemonRole(args []string) error {
	cfg, err := loadIn(args[0], args[1])
	if err != nil {
		return err
	}
	daemon.LimitGarbage()
	d, err := daemon.New(cfg, daemon.Options{Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	d.ReserveProcessors()
	err = d.DropRights()
	if err != nil && !errors.Is(err, errors.ErrUnsupported) { // binary with cgo, for -race
		return err
	}
	fmt.Println("ready")
	return d.Run(context.Background())
}

var rounds = flag.Int("rounds", 20, "kill -9 of the daemon")

// TestKillDaemon kills the daemon repeatedly while a program has a queue pair. The program's queues must end, and
// neither an XDP program nor a used port may remain on the host.
func TestKillDaemon(t *testing.T) {
	t.Parallel()
	tn := hosts(t)
	path, socket := writeConfig(t, ethTable+"[[export]]\nname = \"scratch\"\nlisten = "+
		"\"0.0.0.0:7174\"\nsize = \"1MiB\"\n")
	at := netip.AddrPortFrom(tn.B.Addr4.Addr(), 7174)
	for round := range *rounds {
		c := start(t, "/proc/self/exe", 0, "daemon", fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(),
			tn.B.Fd()), path)
		if got := c.line(); got != "ready" {
			t.Fatalf("round %d: daemon: %q", round, got)
		}
		dev, err := client.Open(socket)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		cq, _ := dev.CreateCQ(16)
		pd, err := dev.AllocPD()
		if err != nil {
			t.Fatal(err)
		}
		qp, err := dev.CreateQP(verbs.QPConfig{PD: pd, SendCQ: cq, RecvCQ: cq})
		if err != nil {
			t.Fatal(err)
		}
		if !attached(t, tn.B) {
			t.Errorf("round %d: no program is attached while the daemon runs", round)
		}
		c.kill()
		<-qp.Done() // the program notices it
		if _, err := cq.Wait(context.Background(), make([]verbs.Completion, 1)); err == nil {
			t.Errorf("round %d: a completion queue outlives its daemon", round)
		}
		dev.Close()
		if _, ok := eventually(func() bool { return !attached(t, tn.B) }); !ok {
			t.Fatalf("round %d: a program is attached after kill -9", round)
		}
		if err := tn.B.Do(func() error { return bindable(at) }); err != nil {
			t.Fatalf("round %d: the port is not free after kill -9: %v", round, err)
		}
	}
}

func bindable(at netip.AddrPort) error {
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
	if err == nil {
		l.Close()
	}
	return err
}

func attached(t testing.TB, h *topo.Host) bool {
	t.Helper()
	l, err := h.Netlink().LinkByName(h.Link.Name)
	if err != nil {
		t.Fatal(err)
	}
	x := l.Attrs().Xdp
	return x != nil && x.Attached
}

// values returns a part's counters of a daemon's first device.
func values(d *daemon.Daemon, part string) map[string]uint64 {
	s := d.Snapshot()
	return s.Statistics.Values(s.Devices[0].Name, part)
}

// used returns a user's current use of a resource.
func used(d *daemon.Daemon, uid uint32, resource string) int64 {
	for _, u := range d.Snapshot().Users {
		if u.UID == uid && u.Resource == resource {
			return u.Used
		}
	}
	return 0
}
