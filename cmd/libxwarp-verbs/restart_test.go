package libxwarpverbs_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"xwarp/bpf/needs"
	"xwarp/engine/daemon/control"
)

// listensVia waits until a program of e listens on a port of the address that other hosts can reach, in a daemon that
// is another process.
func (e *end) listensVia(t *testing.T, p *program, port int) {
	t.Helper()
	at := fmt.Sprintf("src-addr %s:%d ", e.addr, port)
	e.until(t, p, "listens", func() bool {
		for line := range strings.Lines(e.start(t, "rdma resource show cm_id", e).end(t)) {
			line = strings.TrimSpace(line) + " "
			if strings.Contains(line, "state LISTEN") && strings.Contains(line, at) {
				return true
			}
		}
		return false
	})
}

// restart ends a daemon by a signal, waits for its end, and starts it again.
func (e *end) restart(t *testing.T, d *exec.Cmd, s syscall.Signal) *exec.Cmd {
	t.Helper()
	d.Process.Signal(s)
	d.Wait()
	return e.process(t)
}

// TestServersOutliveTheDaemon restarts the daemon below servers of Debian that listen on all addresses: they must serve
// clients afterwards, without being restarted.
func TestServersOutliveTheDaemon(t *testing.T) {
	a, b := pair(t)
	ports := map[string]int{"rping": 7174, "ib_write_bw": 18515, "fio": 7501}
	const fio = "fio --name=x --ioengine=rdma --port=7501 --size=1m --bs=64k "
	for name, x := range map[string]exchange{
		"rping":       {"rping -s -P -v", "rping -c -V -C 3 -a @", "", ""},
		"ib_write_bw": *measurement("ib_write_bw -n 100"),
		"fio": {fio + "--rw=read --iodepth=16",
			fio + "--hostname=@ --rw=write --iodepth=4 --verb=write",
			"err= 0", `WRITE: bw=.*io=1024KiB`},
	} {
		t.Run(name, func(t *testing.T) {
			d := b.process(t)
			s := b.start(t, x.server, a)
			for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
				b.listensVia(t, s, ports[name])
				if name == "rping" { // other servers end with their client
					x.check(t, a.start(t, x.client, b), x.wantClient)
					b.idle(t, s) // an identifier that is left would get DEVICE_REMOVAL
				}
				d = b.restart(t, d, signal)
			}
			b.listensVia(t, s, ports[name])
			x.check(t, a.start(t, x.client, b), x.wantClient)
			if name != "rping" {
				x.check(t, s, x.wantServer)
			}
		})
	}
}

// TestListensAfterLostSession: the daemon is restarted, or gives a slow program up, while that begins to listen on all
// addresses: its first connection to the daemon ends before the reply to hello. It must listen on all of them later.
func TestListensAfterLostSession(t *testing.T) {
	a, b := pair(t)
	b.process(t)
	first := filepath.Join(t.TempDir(), "socket")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: first, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	daemon := b.socket
	for _, path := range []string{first, filepath.Dir(first), filepath.Dir(filepath.Dir(first))} {
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	go func() { // the first connection ends, and later ones reach the daemon
		c, err := ln.Accept()
		if err == nil {
			os.Remove(first)
			os.Symlink(daemon, first)
			c.Close()
		}
		ln.Close()
	}()
	b.socket = first
	s := b.start(t, "rping -s -P -v", a)
	b.socket = daemon
	b.listensVia(t, s, 7174)
	a.start(t, "rping -c -v -C 2 -a @", b).wait(t)
}

// idle waits until a server has destroyed the objects of its connections.
func (e *end) idle(t *testing.T, p *program) {
	t.Helper()
	e.until(t, p, "closes its connections", func() bool {
		return !strings.Contains(e.start(t, "rdma resource show cq", e).end(t), "cqn")
	})
}

// TestRemovalReachesServer ends the daemon below a server of Debian with a client, by SIGTERM and by SIGKILL. Either
// way the server learns that its device is gone, as when a NIC is removed, and rping ends.
func TestRemovalReachesServer(t *testing.T) {
	a, b := pair(t)
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		d := b.process(t)
		s := b.start(t, "rping -s -P -v", a)
		b.listensVia(t, s, 7174)
		c := a.start(t, "rping -c -v -a @", b)
		a.until(t, c, "pings", func() bool { return strings.Contains(c.out.String(), "ping data") })
		d.Process.Signal(signal)
		d.Wait()
		if out := s.end(t); strings.Count(out, "device removal") != 1 {
			t.Errorf("%v: %v\n%s", signal, s.err, out)
		}
		c.Process.Kill() // after SIGKILL its peer is silent
		<-c.done
	}
}

// TestListenerReturnsWithItsDevice restarts the daemon below a server that listens on all addresses, while the
// interface of one device is absent. When the interface is back, the server listens there, too.
func TestListenerReturnsWithItsDevice(t *testing.T) {
	a, _ := pair(t)
	a.second(t)
	d := a.process(t)
	s := a.start(t, "rping -s -P -v", a)
	other := *a
	other.addr = "198.51.100.1"
	other.listensVia(t, s, 7174)
	a.listensVia(t, s, 7174)
	d.Process.Kill()
	d.Wait()
	if err := a.do(exec.Command("ip", "link", "del", "own0").Run); err != nil {
		t.Fatal(err)
	}
	a.process(t)
	a.listensVia(t, s, 7174)
	if err := a.host.AddVeth("own0", "own1", netip.MustParseAddr(other.addr)); err != nil {
		t.Fatal(err)
	}
	other.listensVia(t, s, 7174)
	a.start(t, "rping -c -v -C 2 -a @", &other).wait(t)
}

// TestServerEndsWithOtherVersion replaces the daemon below a server by one that refuses its version of the protocol.
// The server must learn that it will get no more clients.
func TestServerEndsWithOtherVersion(t *testing.T) {
	a, b := pair(t)
	d := b.process(t)
	s := b.start(t, "rping -s -P -v", a)
	b.listensVia(t, s, 7174)
	d.Process.Kill()
	d.Wait()
	os.Remove(b.socket)
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: b.socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	os.Chmod(b.socket, 0o666)
	go func() {
		for {
			c, err := ln.AcceptUnix()
			if err != nil {
				return
			}
			conn := control.NewSocket(c, control.MaxRequest)
			if _, _, _, err := conn.Receive(); err == nil {
				conn.Send(control.KindReply, []byte(`{"id":1,"error":{"code":"version","text":"newer"}}`))
			}
			conn.Close()
		}
	}()
	if out := s.end(t); !strings.Contains(out, "device removal") {
		t.Errorf("%v:\n%s", s.err, out)
	}
}

// TestRestart restarts the daemon below a program with identifiers in each state, and checks their events.
func TestRestart(t *testing.T) {
	a, b := pair(t)
	path := own(t, "restart")
	for i, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL, syscall.SIGTERM} {
		t.Run(fmt.Sprintf("%v, sanitized %v", signal, i > 0), func(t *testing.T) {
			if i > 0 {
				needs.Long(t)
				b.sanitize(t)
			}
			d := b.process(t)
			s := b.start(t, path+" s "+b.addr, a)
			b.listensVia(t, s, 7200)
			c := a.start(t, path+" c @", b)
			said := func(word string) {
				b.until(t, s, word, func() bool { return strings.Contains(s.out.String(), word) })
			}
			said("connected")
			d = b.restart(t, d, signal)
			said("lost")
			b.listensVia(t, s, 7200)
			c.Process.Kill() // its peer is silent
			<-c.done
			c = a.start(t, path+" c @", b)
			if out := s.wait(t); !strings.Contains(out, "all is well") {
				t.Error(out)
			}
			c.Process.Kill()
			<-c.done
			d.Process.Kill()
			d.Wait()
		})
	}
}
