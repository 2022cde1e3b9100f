// Package install tests the Debian package and what it installs, from dpkg --install to dpkg --purge. It boots a
// systemd in namespaces for that.
package install

import (
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
	"sync"
	"testing"
	"time"

	"xwarp/bench/topo"
	"xwarp/bpf/needs"
	"xwarp/engine/daemon/control"
)

var debFlag = flag.String("deb", "", "test this package instead of building one")

// debDirectory is the directory in which build puts the package for all tests.
var debDirectory string

func runTests(m *testing.M) int {
	flag.Parse()
	dir, err := os.MkdirTemp("", "xwarp-deb")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer os.RemoveAll(dir)
	debDirectory = dir
	return m.Run()
}

// build builds the Debian package of this tree, only on the first call, and returns its path. With -deb it returns that
// package.
var build = sync.OnceValues(func() (string, error) {
	if *debFlag != "" {
		return *debFlag, nil
	}
	c := exec.Command("./build.sh", "0.0.1", debDirectory)
	c.Env = append(os.Environ(), "FORMATS=deb")
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build.sh: %w\n%s", err, out)
	}
	debs, err := filepath.Glob(filepath.Join(debDirectory, "*.deb"))
	if err != nil || len(debs) != 1 {
		return "", fmt.Errorf("%v, %w: not one deb", debs, err)
	}
	return debs[0], nil
})

// installed boots a machine on host A of a topology, installs the package there, and adds host A's interface to its
// configuration.
func installed(t *testing.T) (*machine, *topo.Net) {
	t.Helper()
	needs.XSK(t)
	needs.NetNS(t)
	deb, err := build()
	if err != nil {
		t.Fatal(err)
	}
	tn, err := topo.New(topo.Options{OffloadsA: topo.NoOffloads, OffloadsB: topo.NoOffloads})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tn.Close() })
	m := newMachine(t, tn.A)
	m.copy(deb, "tmp/xwarp.deb", 0o644)
	m.run("/usr/bin/dpkg", "--install", "/tmp/xwarp.deb")
	m.edit("/etc/xwarp/xwarp.toml", "[http]\n",
		fmt.Sprintf("[[interface]]\nname = %q\n\n[http]\n", tn.A.Link.Name))
	return m, tn
}

// TestInstall does what an operator does on a machine: install the package, configure an interface, run doctor, start
// the unit, stop it, and purge the package. In between an unprivileged program exchanges data with a second host over
// the daemon, and all tools for watching it are tried.
func TestInstall(t *testing.T) {
	needs.Long(t)
	m, tn := installed(t)
	for _, path := range []string{"/usr/bin/xwarp", "/usr/share/man/man8/xwarpd.8",
		"/usr/share/man/man1/xwarp-doctor.1", "/usr/share/doc/xwarp/copyright",
		"/usr/share/doc/xwarp/SECURITY.md", "/usr/share/xwarp/daemonset.yaml",
		"/usr/share/xwarp/pod.yaml"} {
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
	m.edit("/etc/xwarp/xwarp.toml", "\n#listen = \"\"\n", "\nlisten = \"127.0.0.1:9479\"\n")
	m.run("/usr/bin/xwarp", "config", "check")
	m.green()

	m.run("/usr/bin/systemctl", "start", "xwarpd")
	at := netip.AddrPortFrom(tn.B.Addr4.Addr(), 7174)
	echo(t, tn.B, at)
	program := m.command("/usr/bin/setpriv", "--reuid=65534", "--regid=65534",
		fmt.Sprintf("--groups=%d", m.group("xwarp")), "/usr/local/bin/install-test", at.String())
	program.Env = append(program.Env, roleEnv+"=program")
	m.begin(program, "done")
	m.watch(at)
	m.green() // also while the daemon runs

	m.run("/usr/bin/systemctl", "stop", "xwarpd")
	if got := m.property("Result"); got != "success" {
		t.Errorf("the unit stopped with %s\n%s", got, m.journal())
	}
	l, err := tn.A.Netlink().LinkByName(tn.A.Link.Name)
	if err != nil {
		t.Fatal(err)
	}
	if x := l.Attrs().Xdp; x != nil && x.Attached {
		t.Error("a program is attached after the daemon's end")
	}
	m.run("/usr/bin/dpkg", "--purge", "xwarp")
	for _, path := range []string{"/usr/bin/xwarpd", "/etc/xwarp", "/var/lib/xwarp", "/run/xwarp",
		"/run/xwarpd", "/run/xwarp-tenants", "/usr/lib/systemd/system/xwarpd.service"} {
		if m.exists(path) {
			t.Errorf("%s is there after a purge", path)
		}
	}
	if left := m.run("/bin/sh", "-c", "getent passwd xwarp; getent group xwarp; true"); left != "" {
		t.Errorf("left after a purge: %s", left)
	}
}

// green runs xwarp doctor. Every check must be ok, except that run-daemon may warn that the daemon is not started yet.
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

// group returns the group ID of a group of the machine.
func (m *machine) group(name string) uint32 {
	m.t.Helper()
	var gid uint32
	line := m.run("/usr/bin/getent", "group", name)
	if _, err := fmt.Sscanf(strings.Split(line, ":")[2], "%d", &gid); err != nil {
		m.t.Fatal(err)
	}
	return gid
}

// watch checks that the program's connection shows in each tool that an operator has: status, resource show, top and
// metrics.
func (m *machine) watch(peer netip.AddrPort) {
	m.t.Helper()
	var s control.Status
	if err := json.Unmarshal([]byte(m.run("/usr/bin/xwarp", "status", "-j")), &s); err != nil {
		m.t.Fatal(err)
	}
	if len(s.Devices) != 1 || s.Devices[0].RxFrames == 0 || s.Count.QPs != 1 ||
		s.Count.MRs != 1 {
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

// get returns a page of an HTTP server on the machine's loopback interface.
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
