package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestCommandsWaitForNoTimer runs the commands between the daemons of two hosts, with one file at a time, and counts
// the acknowledgements that waited for the delayed ACK timer. Without prompt acknowledgements each file has one. A few
// are no failure: a busy machine may stop a sender in the middle of a message.
func TestCommandsWaitForNoTimer(t *testing.T) {
	h := newDaemonHosts(t)
	there := filepath.Join(h.dir, "b")
	h.daemon(t, h.B, there)
	from, to, back := filepath.Join(h.dir, "from"), t.TempDir(), t.TempDir()
	err := os.Mkdir(from, 0o755)
	const files = 100
	for i := range files {
		name := filepath.Join(from, fmt.Sprint(i))
		err = errors.Join(err, os.WriteFile(name, []byte("small"), 0o644))
	}
	memory := filepath.Join(h.dir, "memory")
	err = errors.Join(err, os.WriteFile(memory, []byte("before"), 0o644))
	if err != nil {
		t.Fatal(err)
	}
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
	dir, dirAt := serve("--dir="+to, 7301)
	file, fileAt := serve("--file="+memory, 7302)
	pinged := onHost(t, h.B, "rping", "-s", "-P", "-a", h.B.Addr4.Addr().String(), "-p", "7303",
		"--socket="+there)
	said := &listening{at: make(chan struct{})}
	pinged.Cmd.Stderr = struct{ io.Writer }{said} // without ReadFrom of its buffer
	pinged.start(t, h.B)
	select {
	case <-said.at:
	case <-time.After(20 * time.Second):
		t.Fatalf("rping does not listen: %s", said)
	}
	commands := [][]string{
		on("cp", "-r", "--connections=1", from, dirAt+"/"),
		on("cp", "-r", "--connections=1", dirAt+"/from", back),
		on("rping", "-c", "-a", h.B.Addr4.Addr().String(), "-p", "7303", "-C", "100"),
	}
	for range 4 {
		commands = append(commands, on("put", memory, "--to="+fileAt),
			on("get", "--from="+fileAt, "-o", filepath.Join(h.dir, "got")))
	}
	for _, args := range commands {
		c := onHost(t, h.A, args...)
		if err := c.run(t, h.A); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, &c.stderr)
		}
		for _, socket := range []string{h.socket, there} {
			n := snapshotOf(t, socket).Devices[0].Totals
			t.Logf("%s, %s: %d messages, %d acknowledgements by the timer", args[0],
				filepath.Base(socket), n.RDMA["messages_out"], n.TCP["delayed_acks"])
		}
	}
	for _, socket := range []string{h.socket, there} {
		n := snapshotOf(t, socket).Devices[0].Totals
		if messages, delayed := n.RDMA["messages_out"], n.TCP["delayed_acks"]; messages < 2*files ||
			delayed > files/2 {
			t.Errorf("%s: %d messages, %d acknowledgements by the delayed ACK timer",
				filepath.Base(socket), messages, delayed)
		}
	}
	dir.end(t)
	file.end(t)
	pinged.end(t)
}
