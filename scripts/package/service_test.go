package install

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"xwarp/bench/topo"
	"xwarp/bpf/needs"
	"xwarp/engine/sockets"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/verbs"
)

// exports is configuration with an export of each kind, except one in huge pages: all containers share the kernel's
// pool of huge pages, so a test must not reserve any.
const exports = `
[[interface]]
name = "sockets"
transport = "kernel"
[[export]]
name = "anonymous"
listen = "0.0.0.0:7001"
size = "1MiB"
[[export]]
name = "pool"
listen = "0.0.0.0:7002"
memory = "file"
path = "/var/lib/xwarp/pool"
size = "1MiB"
[[export]]
name = "files"
listen = "0.0.0.0:7006"
serve = "directory"
path = "/var/lib/xwarp/files"
[[export]]
name = "kernel"
interface = "sockets"
listen = "0.0.0.0:7007"
serve = "directory"
path = "/var/lib/xwarp/more"
`

// crashes are signals that end or stop a daemon as a bug in it would. After SIGQUIT, SIGABRT and SIGSEGV a Go program
// ends with status 2, as after a panic. After SIGSTOP the daemon no longer answers systemd's watchdog, which kills it.
var crashes = []string{"KILL", "ABRT", "SEGV", "QUIT", "STOP"}

// TestService starts the installed unit under systemd with an export of each kind. After each of crashes the daemon
// must serve all exports again, and files must have their last content. Then it tests systemctl reload.
func TestService(t *testing.T) {
	needs.Long(t)
	m, tn := installed(t)
	for _, dir := range []string{"files", "more"} {
		m.run("/usr/bin/install", "-d", "-o", "xwarp", "-g", "xwarp", "/var/lib/xwarp/"+dir)
	}
	m.edit("/etc/xwarp/xwarp.toml", "\n[http]\n", exports+"\n[http]\n")
	m.dropIn("test", "WatchdogSec=5\n")
	m.run("/usr/bin/xwarp", "config", "check")
	m.run("/usr/bin/systemctl", "start", "xwarpd")
	p := &peer{t: t, host: tn.B, xwarp: filepath.Join(m.root, "usr/bin/xwarp"),
		daemon: tn.A.Addr4.Addr(), dir: t.TempDir()}
	p.exchange("start")
	last := "start"
	for _, signal := range crashes {
		pid := m.property("MainPID")
		m.run("/bin/kill", "-"+signal, pid)
		m.await("a restart after SIG"+signal, func() string {
			now, state := m.property("MainPID"), m.property("ActiveState")
			if state == "active" && now != pid {
				return ""
			}
			return fmt.Sprintf("%s, result %s, status %s", state, m.property("Result"),
				m.property("ExecMainStatus"))
		})
		p.kept(last)
		p.exchange(signal)
		last = signal
	}
	m.edit("/etc/xwarp/xwarp.toml", "listen = \"0.0.0.0:7006\"", "listen = \":7006\"")
	m.run("/usr/bin/systemctl", "reload", "xwarpd")
	m.edit("/etc/xwarp/xwarp.toml", "/var/lib/xwarp/files", "/srv/none")
	if out, status := m.try("/usr/bin/systemctl", "reload", "xwarpd"); status == 0 {
		t.Errorf("systemctl reload with a directory that is not there succeeds: %s", out)
	}
	m.edit("/etc/xwarp/xwarp.toml", "/srv/none", "/var/lib/xwarp/files")
	m.run("/usr/bin/systemctl", "reload", "xwarpd")
	p.kept(last)
	m.run("/usr/bin/systemctl", "stop", "xwarpd")
}

// property returns a property of xwarpd's unit from systemctl show.
func (m *machine) property(name string) string {
	m.t.Helper()
	return strings.TrimSpace(m.run("/usr/bin/systemctl", "show", "xwarpd", "-p", name, "--value"))
}

// peer is the other host, which uses the exports over kernel sockets.
type peer struct {
	t      *testing.T
	host   *topo.Host
	xwarp  string // path of the xwarp command
	daemon netip.Addr
	dir    string
}

// exchange writes to each export and checks that it reads the same back. Afterwards the exported files contain text.
func (p *peer) exchange(text string) {
	p.t.Helper()
	p.verbs(7001)
	p.verbs(7002)
	file := filepath.Join(p.dir, "file")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		p.t.Fatal(err)
	}
	for _, port := range []int{7006, 7007} {
		p.command("cp", "--transport", "kernel", file, p.at(port)+"/file")
	}
	p.kept(text)
}

// kept checks that the exported files contain text.
func (p *peer) kept(text string) {
	p.t.Helper()
	back := filepath.Join(p.dir, "back")
	for _, port := range []int{7006, 7007} {
		os.Remove(back)
		p.command("cp", "--transport", "kernel", p.at(port)+"/file", back)
		if got, err := os.ReadFile(back); string(got) != text || err != nil {
			p.t.Errorf("export at %d: %q, %v, want %q", port, got, err, text)
		}
		if got := p.command("cp", "--transport", "kernel", p.at(port)+"/file", "-"); got != text {
			p.t.Errorf("export at %d: %q on stdout, want %q", port, got, text)
		}
	}
}

func (p *peer) at(port int) string { return fmt.Sprintf("%v:%d", p.daemon, port) }

// command runs xwarp on the other host and returns its standard output. The test fails if the command does.
func (p *peer) command(args ...string) string {
	p.t.Helper()
	var out, errs bytes.Buffer
	c := exec.Command(p.xwarp, args...)
	c.Stdout, c.Stderr = &out, &errs
	if err := p.host.Do(c.Run); err != nil {
		p.t.Fatalf("xwarp %q: %v\n%s", args, err, errs.String())
	}
	return out.String()
}

// verbs writes to the memory that is exported at a port and checks that it reads the same back.
func (p *peer) verbs(port int) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dev, err := sockets.Open(sockets.Config{
		Dial: func(ctx context.Context, _, remote netip.AddrPort) (c net.Conn, err error) {
			err = p.host.Do(func() error {
				c, err = new(net.Dialer).DialContext(ctx, "tcp", remote.String())
				return err
			})
			return c, err
		}})
	if err != nil {
		p.t.Fatal(err)
	}
	defer dev.Close()
	e, err := verbstest.Make(dev, 2*half)
	var remote verbs.RemoteMR
	if err == nil {
		remote, err = e.Dial(ctx, netip.AddrPortFrom(p.daemon, uint16(port)))
	}
	if err == nil {
		err = e.WriteAndRead(ctx, remote)
	}
	if err != nil {
		p.t.Errorf("export at %d: %v", port, err)
	}
}
