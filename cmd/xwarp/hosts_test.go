package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"xwarp/bench/topo"
	"xwarp/bpf/needs"
)

// hosts creates two hosts joined by a veth pair with the given offloads. It lets the calling test run in parallel with
// others.
func hosts(t *testing.T, offA, offB topo.Offloads) *topo.Net {
	t.Helper()
	needs.XSK(t)
	needs.NetNS(t)
	t.Parallel()
	net, err := topo.New(topo.Options{OffloadsA: offA, OffloadsB: offB})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := net.Close(); err != nil {
			t.Error(err)
		}
	})
	return net
}

// command is xwarp in its own process on a host.
type command struct {
	*exec.Cmd
	stdout bytes.Buffer
	stderr bytes.Buffer
}

func onHost(t *testing.T, h *topo.Host, args ...string) *command {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	c := &command{Cmd: exec.CommandContext(ctx, os.Args[0], args...)}
	c.Env = append(os.Environ(), asCommand+"=1")
	c.Cmd.Stdout, c.Cmd.Stderr = &c.stdout, &c.stderr
	return c
}

// start starts c on h: a child process inherits the network namespace of the thread that creates it.
func (c *command) start(t *testing.T, h *topo.Host) {
	t.Helper()
	if err := h.Do(c.Start); err != nil {
		t.Fatal(err)
	}
}

func (c *command) run(t *testing.T, h *topo.Host) error {
	t.Helper()
	c.start(t, h)
	return c.Wait()
}

// serving starts xwarp serve, waits until it listens, and returns it and its address.
func serving(t *testing.T, h *topo.Host, args ...string) (*command, string) {
	t.Helper()
	c := onHost(t, h, append([]string{"serve", "--json"}, args...)...)
	r, w := io.Pipe()
	c.Cmd.Stdout = io.MultiWriter(w, &c.stdout)
	c.start(t, h)
	return c, listeningAt(t, c, r)
}

// listeningAt returns the address that a server prints to r.
func listeningAt(t *testing.T, c *command, r io.Reader) string {
	t.Helper()
	var e serveEvent
	lines := bufio.NewReader(r)
	line, err := lines.ReadString('\n')
	if err == nil {
		err = json.Unmarshal([]byte(line), &e)
	}
	if err != nil || e.Event != "listening" {
		t.Fatalf("serve said %q: %v\n%s", line, err, &c.stderr)
	}
	go io.Copy(io.Discard, lines)
	return e.Address
}

// end interrupts a server, which must exit cleanly.
func (c *command) end(t *testing.T) {
	t.Helper()
	c.Process.Signal(syscall.SIGINT)
	if err := c.Wait(); err != nil {
		t.Errorf("serve: %v\n%s", err, &c.stderr)
	}
}

// transportArgs returns the flags that select a transport on a host with one interface.
func transportArgs(name string) []string {
	if name == "xdp" {
		return []string{"--transport=xdp", "--interface=eth0"}
	}
	return []string{"--transport=kernel"}
}

// Without --interface a command finds the interface of its address.
func TestInterfaceIsFound(t *testing.T) {
	net := hosts(t, topo.NoOffloads, topo.NoOffloads)
	for _, at := range []string{net.B.Addr4.Addr().String(), net.B.Addr6.Addr().String()} {
		srv, at := serving(t, net.B, t.TempDir(), "--listen="+at)
		cp := onHost(t, net.A, "cp", "-", at+"/file", "--json")
		cp.Stdin = strings.NewReader("found")
		if err := cp.run(t, net.A); err != nil {
			t.Fatalf("cp to %s: %v\n%s", at, err, &cp.stderr)
		}
		if !strings.Contains(cp.stdout.String(), `"interface": "eth0"`) {
			t.Errorf("cp said %s", &cp.stdout)
		}
		srv.end(t)
	}
}

// The error of a connection to a host that is down says that ARP or neighbour discovery got no answer, and on which
// interface.
func TestHostDown(t *testing.T) {
	net := hosts(t, topo.NoOffloads, topo.NoOffloads)
	for at, by := range map[netip.Addr]string{
		net.B.Addr4.Addr().Next(): "ARP", net.B.Addr6.Addr().Next(): "neighbour discovery",
	} {
		to := fmt.Sprintf("[%v]:7174/file", at)
		c := onHost(t, net.A, append(transportArgs("xdp"), "cp", "-", to, "--timeout=8s")...)
		c.Stdin = strings.NewReader("nobody reads this")
		err := c.run(t, net.A)
		said := c.stderr.String()
		why := fmt.Sprintf("%s got no answer for %v on eth0", by, at)
		if err == nil || !strings.Contains(said, why) ||
			strings.Contains(said, "level=") || strings.Contains(said, "is xwarp serve") ||
			strings.Count(said, "\n") != 1 {
			t.Errorf("%v: %v\n%s", at, err, said)
		}
	}
}

// A link-local address has its interface as zone, at either end and on either transport.
func TestLinkLocal(t *testing.T) {
	w := hosts(t, topo.NoOffloads, topo.NoOffloads)
	var local netip.Addr
	if err := w.B.Do(func() error {
		i, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		addrs, err := i.Addrs()
		for _, a := range addrs {
			if p, e := netip.ParsePrefix(a.String()); e == nil && p.Addr().Is6() &&
				p.Addr().IsLinkLocalUnicast() {
				local = p.Addr().WithZone("eth0")
			}
		}
		return err
	}); err != nil || !local.IsValid() {
		t.Fatalf("host B has no link-local address: %v", err)
	}
	for _, transport := range []string{"xdp", "kernel"} {
		srv, _ := serving(t, w.B, t.TempDir(), "--transport="+transport,
			fmt.Sprintf("--listen=[%v]:7174", local))
		at := fmt.Sprintf("[%v]:7174/file", local)
		for _, args := range [][]string{{"cp", "-", at}, {"cp", at, "-"}} {
			c := onHost(t, w.A, append(args, "--transport="+transport)...)
			c.Stdin = strings.NewReader("near")
			if err := c.run(t, w.A); err != nil {
				t.Errorf("%s, %q: %v\n%s%s", transport, args, err, &c.stderr, &srv.stderr)
			}
			if args[2] == "-" && c.stdout.String() != "near" {
				t.Errorf("%s: %q came back", transport, &c.stdout)
			}
		}
		srv.end(t)
	}
}

// The kernel's TCP at the other end of a new veth pair exchanges data with the engine in both roles, without changes of
// settings: the veth pair has its default offloads.
func TestKernelPeerNeedsNoSettings(t *testing.T) {
	content := strings.Repeat("blocks and partial checksums ", 1<<17)
	for _, c := range []struct{ name, server, client string }{
		{"kernel client", "xdp", "kernel"}, {"kernel server", "kernel", "xdp"}} {
		t.Run(c.name, func(t *testing.T) {
			net := hosts(t, topo.Offloads{}, topo.Offloads{})
			srv, at := serving(t, net.B, append(transportArgs(c.server), t.TempDir(),
				"--listen="+net.B.Addr4.Addr().String())...)
			to := onHost(t, net.A, append([]string{"cp", "-", at + "/file"},
				transportArgs(c.client)...)...)
			to.Stdin = strings.NewReader(content)
			if err := to.run(t, net.A); err != nil {
				t.Errorf("cp to the server: %v\n%s", err, &to.stderr)
			}
			from := onHost(t, net.A, append([]string{"cp", at + "/file", "-"},
				transportArgs(c.client)...)...)
			if err := from.run(t, net.A); err != nil || from.stdout.String() != content {
				t.Errorf("cp from the server: %v, %d bytes\n%s", err, from.stdout.Len(),
					&from.stderr)
			}
			srv.end(t)
		})
	}
}

// An interrupted demo fails and reports the signal.
func TestDemoInterrupted(t *testing.T) {
	needs.XSK(t)
	net := hosts(t, topo.Offloads{}, topo.Offloads{}) // demo runs in any network namespace
	c := onHost(t, net.A, "demo", "--size=64MiB", "--loss=0.05", "--seed=12", "-v")
	r, w := io.Pipe()
	c.Cmd.Stderr = io.MultiWriter(w, &c.stderr)
	c.start(t, net.A)
	for lines := bufio.NewReader(r); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("demo: %v\n%s", err, &c.stderr)
		}
		if strings.Contains(line, "RDMA_CM_EVENT_ESTABLISHED") {
			go io.Copy(io.Discard, lines)
			break
		}
	}
	c.Process.Signal(syscall.SIGTERM)
	if err := c.Wait(); err == nil || c.ProcessState.ExitCode() != exitFailed {
		t.Errorf("demo: %v, want exit status %d", err, exitFailed)
	}
	if !strings.Contains(c.stderr.String(), "terminated signal received") {
		t.Errorf("demo said %s", &c.stderr)
	}
}
