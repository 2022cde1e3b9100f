// Package install tests what the package installs: on a machine made for it, from dpkg --install to dpkg --purge.
package install

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"xwarp/bench/topo"
	"xwarp/bpf/needs"
	"xwarp/engine/daemon/view"
)

// machine is a host of the test with a file system of its own: all commands run in it and in the host's
// network namespace.
type machine struct {
	t    *testing.T
	host *topo.Host
	root string // its file system, as seen from here
	dir  string // its own, in its mount namespace
	pid  int    // of the process that keeps it
}

func newMachine(t *testing.T, h *topo.Host) *machine {
	t.Helper()
	m := &machine{t: t, host: h}
	m.dir = t.TempDir()
	c := exec.Command("/proc/self/exe", m.dir)
	c.Env = append(os.Environ(), roleEnv+"=machine")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS,
		Pdeathsig: syscall.SIGKILL}
	m.begin(c, "ready")
	m.pid = c.Process.Pid
	m.root = fmt.Sprintf("/proc/%d/root", m.pid)
	m.copy("/proc/self/exe", "usr/local/bin/install-test", 0o755)
	return m
}

// begin starts a process that lives until its standard input ends, and waits for the line that it prints when
// it is ready.
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
	if err := m.host.Do(c.Start); err != nil {
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

// edit replaces text in a file, as an operator does.
func (m *machine) edit(path, old, new string) {
	m.t.Helper()
	path = filepath.Join(m.root, path)
	b, err := os.ReadFile(path)
	if err != nil {
		m.t.Fatal(err)
	}
	text := strings.Replace(string(b), old, new, 1)
	if text == string(b) {
		m.t.Fatalf("%s has no %q", path, old)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

// command is a command on the machine, as root.
func (m *machine) command(name string, args ...string) *exec.Cmd {
	c := exec.Command(name, args...)
	c.Path = name
	c.Dir = "/"
	c.Env = []string{"PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8"}
	c.SysProcAttr = &syscall.SysProcAttr{Chroot: m.root}
	return c
}

// run returns what a command prints; it must end well.
func (m *machine) run(name string, args ...string) string {
	m.t.Helper()
	var out, errs bytes.Buffer
	c := m.command(name, args...)
	c.Stdout, c.Stderr = &out, &errs
	if err := m.host.Do(c.Run); err != nil {
		m.t.Fatalf("%s %v: %v\n%s%s", name, args, err, out.String(), errs.String())
	}
	return out.String()
}

func (m *machine) exists(path string) bool {
	_, err := os.Lstat(filepath.Join(m.root, path))
	return err == nil
}

var debFlag = flag.String("deb", "", "test this package instead of building one")

// build makes the deb of this tree.
func build(t *testing.T) string {
	t.Helper()
	if *debFlag != "" {
		return *debFlag
	}
	dir := t.TempDir()
	c := exec.Command("./build.sh", "0.0.1", dir)
	c.Env = append(os.Environ(), "FORMATS=deb")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("build.sh: %v\n%s", err, out)
	}
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(debs) != 1 {
		t.Fatalf("%v, %v: not one deb", debs, err)
	}
	return debs[0]
}

// TestInstall is an operator's way: install the package, configure an interface, ask doctor, start the unit's
// command line under the unit's rights, have a program without rights exchange data with a second host, watch
// that, stop the daemon, purge the package.
func TestInstall(t *testing.T) {
	needs.XSK(t)
	needs.NetNS(t)
	deb := build(t)
	tn, err := topo.New(topo.Options{OffloadsA: topo.NoOffloads,
		OffloadsB: topo.NoOffloads})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tn.Close() })
	m := newMachine(t, tn.A)
	m.copy(deb, "tmp/xwarp.deb", 0o644)
	m.run("/usr/bin/dpkg", "--install", "/tmp/xwarp.deb")
	for _, path := range []string{"/usr/bin/xwarp", "/usr/share/man/man8/xwarpd.8",
		"/usr/share/man/man1/xwarp-doctor.1", "/usr/share/doc/xwarp/copyright"} {
		if !m.exists(path) {
			t.Errorf("the package lacks %s", path)
		}
	}
	for _, program := range []string{"xwarp", "xwarpd"} {
		if got := m.run("/usr/bin/"+program, "--version"); !strings.HasPrefix(got, program+
			" 0.0.1, go") {
			t.Errorf("%s --version says %q", program, got)
		}
	}
	m.edit("/etc/xwarp/xwarp.toml", "[http]\n", fmt.Sprintf("[[interface]]\nname = %q\n\n[http]\n",
		tn.A.Link.Name))
	m.edit("/etc/xwarp/xwarp.toml", "\nlisten = \"\"\n", "\nlisten = \"127.0.0.1:9479\"\n")
	m.run("/usr/bin/xwarp", "config", "check")
	m.green()

	daemon := m.start()
	at := netip.AddrPortFrom(tn.B.Addr4.Addr(), 7174)
	echo(t, tn.B, at)
	program := m.command("/usr/local/bin/install-test", at.String())
	program.Env = append(program.Env, roleEnv+"=program")
	program.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534,
		Groups: []uint32{m.group("xwarp")}}
	m.begin(program, "done")
	m.watch(at)
	m.green() // also beside the daemon

	if err := daemon.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := daemon.Wait(); err != nil {
		t.Errorf("xwarpd after SIGTERM: %v", err)
	}
	l, err := tn.A.Netlink().LinkByName(tn.A.Link.Name)
	if err != nil {
		t.Fatal(err)
	}
	if x := l.Attrs().Xdp; x != nil && x.Attached {
		t.Error("a program is attached after the daemon's end")
	}
	m.run("/usr/bin/dpkg", "--purge", "xwarp")
	for _, path := range []string{"/usr/bin/xwarpd", "/etc/xwarp",
		"/usr/lib/systemd/system/xwarpd.service"} {
		if m.exists(path) {
			t.Errorf("%s is there after a purge", path)
		}
	}
}

// green asks doctor, which must find nothing to say but that the daemon is not started yet.
func (m *machine) green() {
	m.t.Helper()
	var v struct {
		Lines []struct{ Check, Status, What string }
	}
	if err := json.Unmarshal([]byte(m.run("/usr/bin/xwarp", "doctor", "--interface",
		m.host.Link.Name, "--port", "7174", "-j")), &v); err != nil {
		m.t.Fatal(err)
	}
	for _, l := range v.Lines {
		off := l.Check == "run-daemon" && l.Status == "warn" &&
			strings.Contains(l.What, "systemctl start xwarpd")
		if l.Status != "ok" && !off {
			m.t.Errorf("doctor: %s is %s: %s", l.Check, l.Status, l.What)
		}
	}
	if len(v.Lines) < 10 {
		m.t.Errorf("doctor has only %d lines", len(v.Lines))
	}
}

// start starts what the unit starts and waits until it tells systemd that it is ready.
func (m *machine) start() *exec.Cmd {
	m.t.Helper()
	notify := filepath.Join(m.root, "run/notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: notify, Net: "unixgram"})
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { manager.Close() })
	if err := os.Chmod(notify, 0o777); err != nil {
		m.t.Fatal(err)
	}
	mounts, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", m.pid))
	if err != nil {
		m.t.Fatal(err)
	}
	defer mounts.Close()
	c := m.command("/usr/local/bin/install-test", filepath.Join(m.dir, "root"))
	c.Env = append(c.Env, roleEnv+"=unit", "NOTIFY_SOCKET=/run/notify")
	c.ExtraFiles = []*os.File{mounts}
	c.Stdout, c.Stderr = m.t.Output(), m.t.Output()
	if err := m.host.Do(c.Start); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	manager.SetReadDeadline(time.Now().Add(time.Minute))
	b := make([]byte, 1024)
	for {
		n, err := manager.Read(b)
		if err != nil {
			m.t.Fatalf("xwarpd does not become ready: %v", err)
		}
		if strings.Contains(string(b[:n]), "READY=1") {
			return c
		}
	}
}

// group returns the number of a group of the machine.
func (m *machine) group(name string) uint32 {
	m.t.Helper()
	var gid uint32
	line := m.run("/usr/bin/getent", "group", name)
	if _, err := fmt.Sscanf(strings.Split(line, ":")[2], "%d", &gid); err != nil {
		m.t.Fatal(err)
	}
	return gid
}

// watch looks at the program's connection in every way that an operator has.
func (m *machine) watch(peer netip.AddrPort) {
	m.t.Helper()
	var s view.Status
	if err := json.Unmarshal([]byte(m.run("/usr/bin/xwarp", "status", "-j")), &s); err != nil {
		m.t.Fatal(err)
	}
	if len(s.Devices) != 1 || s.Devices[0].RxFrames == 0 || s.Objects.QPs != 1 ||
		s.Objects.MRs != 1 {
		m.t.Errorf("status: %+v", s)
	}
	if qp := m.run("/usr/bin/xwarp", "resource", "show", "qp"); !strings.Contains(qp,
		peer.String()) || !strings.Contains(qp, "RTS") {
		m.t.Errorf("resource show qp: %s", qp)
	}
	if top := m.run("/usr/bin/xwarp", "top", "-n", "1", "--interval", "200ms"); !strings.Contains(
		top, peer.String()) {
		m.t.Errorf("top: %s", top)
	}
	metrics := m.get("http://127.0.0.1:9479/metrics")
	for _, want := range []string{"xwarp_build_info{",
		`xwarp_queue_pairs{device="eth0",state="RTS"} 1`} {
		if !strings.Contains(metrics, want) {
			m.t.Errorf("the metrics lack %q:\n%s", want, metrics)
		}
	}
}

// get asks an HTTP server on the machine's loopback interface.
func (m *machine) get(url string) string {
	m.t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (
		c net.Conn, err error) {
		err = m.host.Do(func() error {
			c, err = new(net.Dialer).DialContext(ctx, network, address)
			return err
		})
		return c, err
	}}
	defer transport.CloseIdleConnections()
	r, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Get(url)
	if err != nil {
		m.t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		m.t.Fatalf("%s: %s, %v", url, r.Status, err)
	}
	return string(b)
}
