package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
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
)

// hosts creates two hosts. Unless requested, the veth ends have checksum offload off.
func hosts(t *testing.T, offA, offB topo.Offloads) *topo.Net {
	t.Helper()
	needs.XSK(t)
	needs.NetNS(t)
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

// Both commands with both transports in all combinations, over the same kind of veth pair.
func TestPairings(t *testing.T) {
	dir := t.TempDir()
	content := make([]byte, 8<<20+12345)
	rand.NewChaCha8([32]byte{2}).Read(content)
	file := filepath.Join(dir, "in")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, server := range []string{"xdp", "kernel"} {
		for _, client := range []string{"xdp", "kernel"} {
			t.Run(client+" to "+server, func(t *testing.T) {
				net := hosts(t, topo.NoOffloads, topo.NoOffloads)
				srv, at := serving(t, net.B, append(transportArgs(server), "--size=16MiB",
					"--listen="+net.B.Addr4.Addr().String())...)
				put := onHost(t, net.A, append(transportArgs(client), "put", file, "--to="+at)...)
				if err := put.run(t, net.A); err != nil {
					t.Fatalf("put: %v\n%s\nserver: %s", err, &put.stderr, &srv.stdout)
				}
				out := filepath.Join(dir, "out")
				get := onHost(t, net.A, append(transportArgs(client), "get", "--from="+
					at, "-o", out)...)
				if err := get.run(t, net.A); err != nil {
					t.Fatalf("get: %v\n%s\nserver: %s", err, &get.stderr, &srv.stdout)
				}
				if got, err := os.ReadFile(out); err != nil || !bytes.Equal(got, content) {
					t.Errorf("got %d bytes, %v; want the %d that were put", len(got), err,
						len(content))
				}
				srv.end(t)
			})
		}
	}
}

// Without --interface a command finds the interface of its address.
func TestInterfaceIsFound(t *testing.T) {
	net := hosts(t, topo.NoOffloads, topo.NoOffloads)
	for _, at := range []string{net.B.Addr4.Addr().String(), net.B.Addr6.Addr().String()} {
		srv, at := serving(t, net.B, "--size=1MiB", "--listen="+at)
		put := onHost(t, net.A, "put", "-", "--to="+at, "--json")
		put.Stdin = strings.NewReader("found")
		if err := put.run(t, net.A); err != nil {
			t.Fatalf("put to %s: %v\n%s", at, err, &put.stderr)
		}
		if !strings.Contains(put.stdout.String(), `"interface": "eth0"`) {
			t.Errorf("put said %s", &put.stdout)
		}
		srv.end(t)
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
		srv, _ := serving(t, w.B, "--transport="+transport, "--size=1MiB",
			fmt.Sprintf("--listen=[%v]:7174", local))
		for _, args := range [][]string{{"put", "-", "--to"},
			{"get", "-o", filepath.Join(t.TempDir(), "out"), "--from"}} {
			c := onHost(t, w.A, append(args, fmt.Sprintf("[%v]:7174", local), "--transport="+
				transport)...)
			c.Stdin = strings.NewReader("near")
			if err := c.run(t, w.A); err != nil {
				t.Errorf("%s, %s: %v\n%s%s", transport, args[0], err, &c.stderr, &srv.stderr)
			}
		}
		srv.end(t)
	}
}

// The kernel's TCP at the other end of a fresh veth, with all offloads, exchanges data at once in both roles, with MPA
// and, as a program that knows nothing of it, without.
func TestKernelPeerNeedsNoSettings(t *testing.T) {
	content := strings.Repeat("blocks and partial checksums ", 1<<17)
	for _, c := range []struct{ name, server, client string }{
		{"kernel client", "xdp", "kernel"}, {"kernel server", "kernel", "xdp"}} {
		t.Run(c.name, func(t *testing.T) {
			net := hosts(t, topo.Offloads{}, topo.Offloads{})
			srv, at := serving(t, net.B, append(transportArgs(c.server), "--size=4MiB",
				"--listen="+net.B.Addr4.Addr().String())...)
			put := onHost(t, net.A, append([]string{"put", "-", "--to=" + at},
				transportArgs(c.client)...)...)
			put.Stdin = strings.NewReader(content)
			if err := put.run(t, net.A); err != nil {
				t.Errorf("put: %v\n%s", err, &put.stderr)
			}
			get := onHost(t, net.A, append([]string{"get", "-o=-", "--from=" + at},
				transportArgs(c.client)...)...)
			if err := get.run(t, net.A); err != nil || get.stdout.String() != content {
				t.Errorf("get: %v, %d bytes\n%s", err, get.stdout.Len(), &get.stderr)
			}
			srv.end(t)
		})
	}
}

// An interrupted demo cleans up and reports the interruption.
func TestDemoInterrupted(t *testing.T) {
	needs.XSK(t)
	net := hosts(t, topo.Offloads{}, topo.Offloads{}) // any namespace of our own will do
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

// TestUnservedQueueIsNamed: connections on a queue that --queues omits stall, and the command reports the queue and
// its number of frames.
func TestUnservedQueueIsNamed(t *testing.T) {
	needs.XSK(t)
	needs.NetNS(t)
	net, err := topo.New(topo.Options{Queues: 2, OffloadsA: topo.NoOffloads})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { net.Close() })
	srv, at := serving(t, net.B, append(transportArgs("xdp"), "--queues=0", "--size=1MiB",
		"--listen="+net.B.Addr4.Addr().String())...)
	stalled := 0
	for range 12 { // which queue a connection comes on is chance
		put := onHost(t, net.A, "put", "-", "--to="+at, "--transport=kernel", "--timeout=1s")
		if put.run(t, net.A) != nil {
			stalled++
		}
		if stalled == 2 {
			break
		}
	}
	srv.end(t)
	const want = "frames on receive queue 1 of eth0, which is not served"
	if said := srv.stderr.String(); stalled == 0 || !strings.Contains(said, want) ||
		!strings.Contains(said, "Add the queue to --queues") {
		t.Errorf("%d puts stalled, and the server said %q", stalled, said)
	}
}
