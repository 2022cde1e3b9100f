package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"xwarp/bench/topo"
)

// TestCommandsWaitForNoTimer runs the commands between the daemons of two hosts, one file at a time, and counts
// delayed ACKs. Without prompt acknowledgements each file has one. A few are accepted: a busy machine may stop a
// sender in the middle of a message.
func TestCommandsWaitForNoTimer(t *testing.T) {
	h := newDaemonHosts(t)
	there := filepath.Join(h.dir, "b")
	h.daemon(t, h.B, there)
	from, to, back := smallFiles(t), t.TempDir(), t.TempDir()
	one := filepath.Join(from, "0")
	on := func(args ...string) []string {
		return append(args, "--socket="+h.socket, "--timeout=2m")
	}
	serve := func(what string, port int) (*command, string) {
		srv := onHost(t, h.B, "serve", what, "--socket="+there, "--json",
			fmt.Sprintf("--listen=%v:%d", h.B.Addr4.Addr(), port))
		r, w := io.Pipe()
		srv.Cmd.Stdout = io.MultiWriter(w, &srv.stdout)
		srv.start(t, h.B)
		return srv, listeningAt(t, srv, r)
	}
	dir, dirAt := serve(to, 7301)
	pinged := onHost(t, h.B, "bench", "send_lat", "-p", "7303", "-n", "300", "--socket="+there)
	pinged.start(t, h.B)
	listens(t, h.B, 7303)
	commands := [][]string{
		on("cp", "-r", "--connections=1", from, dirAt+"/"),
		on("cp", "-r", "--connections=1", dirAt+"/"+filepath.Base(from), back),
		{"bench", "send_lat", "-p", "7303", "-n", "300", "--socket=" + h.socket,
			h.B.Addr4.Addr().String()},
	}
	for range 4 {
		commands = append(commands, on("cp", one, dirAt+"/one", "--connections=1"),
			on("cp", dirAt+"/one", filepath.Join(back, "one"), "--connections=1"))
	}
	for _, args := range commands {
		c := onHost(t, h.A, args...)
		if err := c.run(t, h.A); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, &c.stderr)
		}
		for _, socket := range []string{h.socket, there} {
			s := snapshotOf(t, socket)
			t.Logf("%s, %s: %d messages, %d acknowledgements by the timer", args[0],
				filepath.Base(socket), s.Statistics.Values("eth0", "rdma")["messages_out"],
				s.Statistics.Values("eth0", "tcp")["delayed_acks"])
		}
	}
	for _, socket := range []string{h.socket, there} {
		s := snapshotOf(t, socket)
		messages := s.Statistics.Values("eth0", "rdma")["messages_out"]
		delayed := s.Statistics.Values("eth0", "tcp")["delayed_acks"]
		if messages < 2*smalls || delayed > smalls/2 {
			t.Errorf("%s: %d messages, %d acknowledgements by the delayed ACK timer",
				filepath.Base(socket), messages, delayed)
		}
	}
	dir.end(t)
	if err := pinged.Wait(); err != nil {
		t.Errorf("send_lat: %v\n%s", err, &pinged.stderr)
	}
}

// smalls is the number of files that smallFiles creates.
const smalls = 100

func smallFiles(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for i := range smalls {
		name := filepath.Join(dir, fmt.Sprint(i))
		if err := os.WriteFile(name, []byte("small"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestKernelAcknowledgesAtOnce copies many small files from the engine's TCP to a server on kernel TCP that rarely
// replies. The kernel counts its delayed ACKs: without prompt acknowledgements, one for each message without a reply.
// At most one for two files is accepted.
func TestKernelAcknowledgesAtOnce(t *testing.T) {
	h := hosts(t, topo.NoOffloads, topo.NoOffloads)
	srv, at := serving(t, h.B, "--transport=kernel", t.TempDir(),
		"--listen="+h.B.Addr4.Addr().String()+":7301")
	before := delayedByKernel(t, h.B)
	cp := onHost(t, h.A, "cp", "-r", "--connections=1", "--transport=xdp", "--interface=eth0",
		smallFiles(t), at+"/")
	if err := cp.run(t, h.A); err != nil {
		t.Fatalf("%v\n%s", err, &cp.stderr)
	}
	delayed := delayedByKernel(t, h.B) - before
	t.Logf("%d delayed acknowledgements", delayed)
	if delayed > smalls/2 {
		t.Errorf("the kernel delayed %d acknowledgements while %d files came", delayed, smalls)
	}
	srv.end(t)
}

// delayedByKernel returns the number of delayed ACKs that the kernel of a host sent.
func delayedByKernel(t *testing.T, h *topo.Host) (n int) {
	t.Helper()
	var b []byte
	err := h.Do(func() (err error) {
		b, err = os.ReadFile("/proc/thread-self/net/netstat")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(b), "\n")
	i := slices.Index(strings.Fields(lines[0]), "DelayedACKs")
	values := strings.Fields(lines[1])
	if i < 0 || i >= len(values) {
		t.Fatalf("no DelayedACKs in %q", lines[:2])
	}
	if n, err = strconv.Atoi(values[i]); err != nil {
		t.Fatal(err)
	}
	return n
}
