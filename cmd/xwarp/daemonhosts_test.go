package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"xwarp/bench/topo"
	"xwarp/bpf/needs"
	"xwarp/engine/daemon"
	"xwarp/engine/daemon/client"
	"xwarp/engine/daemon/config"
	"xwarp/engine/daemon/control"
	"xwarp/engine/sockets"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/transfer"
	"xwarp/engine/verbs"
)

// asProgram is the environment variable that makes the test binary a program of the daemon. Its value is the socket
// and a peer.
const asProgram = "XWARP_TEST_PROGRAM"

// nobody is an unprivileged user.
const nobody = 65534

// daemonHosts is two hosts whose interfaces have two queues each, with a daemon on A that every user may use, and a
// copy of this executable that every user may run.
type daemonHosts struct {
	*topo.Net
	dir, exe, socket string
	ifname           string // name of A's interface in the configuration
}

func newDaemonHosts(t *testing.T) *daemonHosts {
	t.Helper()
	return newNamedHosts(t, "eth0")
}

// newNamedHosts is newDaemonHosts with a name or alternative name of A's interface in the configuration.
func newNamedHosts(t *testing.T, ifname string) *daemonHosts {
	t.Helper()
	needs.XSK(t)
	needs.NetNS(t)
	t.Parallel()
	h := &daemonHosts{ifname: ifname}
	var err error
	h.Net, err = topo.New(topo.Options{
		Queues: 2, OffloadsA: topo.NoOffloads, OffloadsB: topo.NoOffloads,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	if ifname != "eth0" {
		h.ip(t, "link", "property", "add", "dev", "eth0", "altname", ifname)
	}
	if h.dir, err = os.MkdirTemp("", "xwarp"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(h.dir) })
	h.exe, h.socket = filepath.Join(h.dir, "xwarp"), filepath.Join(h.dir, "s")
	exe, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = errors.Join(os.Chmod(h.dir, 0o777), os.WriteFile(h.exe, exe, 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	h.daemon(t, h.A, h.socket)
	return h
}

// daemon runs a daemon on the host on until the test ends. Its configuration is beside its socket.
func (h *daemonHosts) daemon(t *testing.T, on *topo.Host, socket string) {
	t.Helper()
	file := socket + ".toml"
	text := fmt.Sprintf("[daemon]\nsocket = %q\nsocket_mode = \"0666\"\ngrace = \"1s\"\n"+
		"[[interface]]\nname = %q\n", socket, h.ifname)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(config.Source{Path: file})
	if err != nil {
		t.Fatal(err)
	}
	var d *daemon.Daemon
	err = on.Do(func() (err error) {
		d, err = daemon.New(cfg, daemon.Options{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
}

// ip runs ip(8) on A.
func (h *daemonHosts) ip(t *testing.T, args ...string) {
	t.Helper()
	var out []byte
	err := h.A.Do(func() (err error) {
		out, err = exec.Command("ip", args...).CombinedOutput()
		return err
	})
	if err != nil {
		t.Fatalf("ip %q: %v: %s", args, err, out)
	}
}

// user runs a command on A as the user nobody.
func (h *daemonHosts) user(t *testing.T, args ...string) *command {
	t.Helper()
	c := onHost(t, h.A, args...)
	c.Path = h.exe
	c.Dir = h.dir
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	return c
}

// exportMemory exports memory at an address of h over kernel sockets, to one connection.
func exportMemory(t *testing.T, h *topo.Host, at netip.AddrPort) {
	t.Helper()
	dev, err := sockets.Open(sockets.Config{
		Listen: func(at netip.AddrPort) (l net.Listener, err error) {
			err = h.Do(func() error {
				l, err = net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(at))
				return err
			})
			return l, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	e := verbstest.New(t, dev, programBytes)
	l, err := dev.Listen(at, verbs.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if r, err := l.Accept(t.Context()); err == nil {
			r.Accept(t.Context(), e.QP, e.MR.Remote().Append(nil))
		}
	}()
}

// programBytes is the number of bytes that a program writes and reads back.
const programBytes = 1 << 20

// runProgram connects to the peer through the daemon at socket, writes into the peer's memory and reads that back.
func runProgram(socket, peer string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	dev, err := client.Open(socket)
	if err != nil {
		return err
	}
	defer dev.Close()
	e, err := verbstest.Make(dev, 2*programBytes)
	if err != nil {
		return err
	}
	to, err := e.Dial(ctx, netip.MustParseAddrPort(peer))
	if err != nil {
		return err
	}
	return e.WriteAndRead(ctx, to)
}

// TestDaemonSharesInterface runs six programs of an unprivileged user at the same time over xwarpd, on an interface of
// two queues. All must succeed, cp must choose the daemon automatically, and the daemon must count the bytes.
func TestDaemonSharesInterface(t *testing.T) {
	h := newDaemonHosts(t)
	b := h.B.Addr4.Addr().String()
	content := make([]byte, 8<<20+12345)
	rand.NewChaCha8([32]byte{2}).Read(content)
	file := filepath.Join(h.dir, "in")
	if err := os.WriteFile(file, content, 0o644); err != nil {
		t.Fatal(err)
	}
	kernel := "--transport=kernel"
	there := t.TempDir()
	srv, at := serving(t, h.B, kernel, there, "--listen="+b+":7200")
	defer srv.end(t)
	if err := os.WriteFile(there+"/kept", content, 0o644); err != nil {
		t.Fatal(err)
	}
	exportMemory(t, h.B, netip.MustParseAddrPort(b+":7202"))
	ping := onHost(t, h.B, "bench", "send_lat", kernel, "-p", "7203", "-s", "64", "-n", "200")
	ping.start(t, h.B)
	const writes, size = 2000, 16384
	bw := onHost(t, h.B, "bench", "write_bw", kernel, "-p", "7210", "-s", fmt.Sprint(size), "-n",
		fmt.Sprint(writes))
	bw.start(t, h.B)
	listens(t, h.B, 7203, 7210)

	socket := "--socket=" + h.socket
	out := filepath.Join(h.dir, "out")
	program := h.user(t)
	program.Env = append(os.Environ(), asProgram+"="+h.socket+" "+b+":7202")
	all := map[string]*command{
		"cp to 1": h.user(t, "cp", file, at+"/1", "--json", "--timeout=2m", socket),
		"cp to 2": h.user(t, "cp", file, at+"/2", "--json", "--timeout=2m", socket),
		"cp from": h.user(t, "cp", at+"/kept", out, "--json", "--timeout=2m", socket),
		"send_lat": h.user(t, "bench", "send_lat", "-p", "7203", "-s", "64", "-n", "200",
			socket, b),
		"write_bw": h.user(t, "bench", "write_bw", "-p", "7210", "-s", fmt.Sprint(size),
			"-n", fmt.Sprint(writes), socket, b),
		"program": program,
	}
	errs := make(map[string]error)
	var mu sync.Mutex
	var group sync.WaitGroup
	for name, c := range all {
		c.start(t, h.A)
		group.Go(func() {
			err := c.Wait()
			mu.Lock()
			errs[name] = err
			mu.Unlock()
		})
	}
	group.Wait()
	for name, c := range all {
		if errs[name] != nil {
			t.Errorf("%s: %v\n%s%s", name, errs[name], &c.stdout, &c.stderr)
		}
		if daemons := strings.Contains(c.stdout.String(), `"daemon": true`); !daemons &&
			strings.HasPrefix(name, "cp") {
			t.Errorf("%s did not use the daemon: %s", name, &c.stdout)
		}
	}
	for _, name := range []string{out, there + "/1", there + "/2"} {
		if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s: %d bytes, %v; want %d", name, len(got), err, len(content))
		}
	}
	for name, c := range map[string]*command{"send_lat": ping, "write_bw": bw} {
		if err := c.Wait(); err != nil {
			t.Errorf("%s of B: %v\n%s%s", name, err, &c.stdout, &c.stderr)
		}
	}
	h.checkTotals(t, 2*len(content)+writes*size+programBytes, len(content)+programBytes)
}

// checkTotals checks that the daemon counted the given payload bytes, and at most slack bytes more for the commands'
// own messages. No frame may have arrived on a queue without an owner.
func (h *daemonHosts) checkTotals(t *testing.T, sent, received int) {
	t.Helper()
	s := snapshotOf(t, h.socket)
	const slack = 64 << 10
	n := s.Statistics.Values(s.Devices[0].Name, "rdma")
	if got := int(n["payload_out"]); got < sent || got > sent+slack {
		t.Errorf("%d bytes were sent, want %d and the commands' own messages", got, sent)
	}
	if got := int(n["payload_in"]); got < received || got > received+slack {
		t.Errorf("%d bytes were received, want %d and the commands' own messages", got, received)
	}
	if s.Devices[0].Unowned > 0 {
		t.Errorf("frames on queues without an owner: %d on %v", s.Devices[0].Unowned,
			s.Devices[0].UnservedQueues)
	}
}

// snapshotOf returns a snapshot of a daemon with one device.
func snapshotOf(t *testing.T, socket string) control.Snapshot {
	t.Helper()
	dev, err := client.Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	s, err := dev.Snapshot(t.Context())
	if err != nil || len(s.Devices) != 1 || s.Devices[0].Error != "" {
		t.Fatalf("snapshot: %+v, %v", s, err)
	}
	return s
}

// listens waits until a host listens on ports.
func listens(t *testing.T, h *topo.Host, ports ...int) {
	t.Helper()
	for _, p := range ports {
		want := fmt.Sprintf(":%04X 00000000:0000 0A ", p)
		want6 := fmt.Sprintf(":%04X 00000000000000000000000000000000:0000 0A ", p)
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			var b, b6 []byte
			h.Do(func() error {
				b, _ = os.ReadFile("/proc/thread-self/net/tcp")
				b6, _ = os.ReadFile("/proc/thread-self/net/tcp6")
				return nil
			})
			if bytes.Contains(b, []byte(want)) || bytes.Contains(b6, []byte(want6)) {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("nothing listens at port %d", p)
			}
		}
	}
}

// TestServeOnDaemon: an unprivileged user serves through the daemon. Every copy by a peer succeeds, on whichever queue
// its connection arrives.
func TestServeOnDaemon(t *testing.T) {
	h := newDaemonHosts(t)
	dir := filepath.Join(h.dir, "served")
	file := filepath.Join(dir, "file")
	err := errors.Join(os.Mkdir(dir, 0o777), os.Chmod(dir, 0o777),
		os.WriteFile(file, []byte("before"), 0o666))
	if err != nil {
		t.Fatal(err)
	}
	srv := h.user(t, "serve", dir, "--size=1MiB", "--socket="+h.socket, "--json",
		"--listen=:7300") // the addresses of eth0, since users may not listen on all
	r, w := io.Pipe()
	srv.Cmd.Stdout = io.MultiWriter(w, &srv.stdout)
	srv.start(t, h.A)
	at := listeningAt(t, srv, r)
	from := onHost(t, h.B, "cp", at+"/file", "--transport=kernel", "-")
	if err := from.run(t, h.B); err != nil || from.stdout.String() != "before" {
		t.Errorf("the older file: %v, %q\n%s", err, &from.stdout, &from.stderr)
	}
	for i := range 8 {
		text := strings.Repeat(fmt.Sprintf("copy %d ", i), 1000*(i+1))
		to := onHost(t, h.B, "cp", "-", at+"/file", "--transport=kernel", "--timeout=2m")
		to.Stdin = strings.NewReader(text)
		if err := to.run(t, h.B); err != nil {
			t.Fatalf("copy %d: %v\n%s\n%s", i, err, &to.stderr, &srv.stderr)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != text {
			t.Fatalf("copy %d: the file has %d bytes, want %d (%v)", i, len(got), len(text), err)
		}
	}
	srv.end(t)
}

// TestDaemonIsNamed: the error for an interface in use names the daemon that uses it, and how to use that daemon. A
// user who may not open the daemon's socket reads the alternatives.
func TestDaemonIsNamed(t *testing.T) {
	h := newDaemonHosts(t)
	to := h.B.Addr4.Addr().String() + ":/file"
	busy := onHost(t, h.A, "cp", "-", to, "--transport=xdp")
	if err := busy.run(t, h.A); err == nil ||
		!strings.Contains(busy.stderr.String(), fmt.Sprintf("(pid %d)", os.Getpid())) ||
		!strings.Contains(busy.stderr.String(), "--transport=daemon") {
		t.Errorf("an interface that is taken: %v\n%s", err, &busy.stderr)
	}
	if err := os.Chmod(h.socket, 0o600); err != nil {
		t.Fatal(err)
	}
	barred := h.user(t, "cp", "-", to, "--socket="+h.socket)
	err := barred.run(t, h.A)
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		t.Fatalf("a user who is in no group: %v", err)
	}
	for _, want := range []string{"AF_XDP needs root", "--transport=kernel",
		"daemon.socket_group"} {
		if !strings.Contains(barred.stderr.String(), want) {
			t.Errorf("a user who is in no group reads %q, want %q", &barred.stderr, want)
		}
	}
}

// TestOwnHostOnDaemon: two commands of one host, both on its daemon, at its own addresses.
func TestOwnHostOnDaemon(t *testing.T) {
	h := newDaemonHosts(t)
	content := make([]byte, 1<<20+12345)
	rand.NewChaCha8([32]byte{3}).Read(content)
	dir, socket := t.TempDir(), "--socket="+h.socket
	if err := os.WriteFile(dir+"/in", content, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, at := range []netip.Addr{h.A.Addr4.Addr(), h.A.Addr6.Addr(),
		netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()} {
		server, from := serving(t, h.A, dir, socket,
			"--listen="+netip.AddrPortFrom(at, 7200).String())
		out := filepath.Join(h.dir, "out")
		cp := h.user(t, "cp", from+"/in", out, "--json", socket)
		err := cp.run(t, h.A)
		got, readErr := os.ReadFile(out)
		if err != nil || readErr != nil || !bytes.Equal(got, content) ||
			!strings.Contains(cp.stdout.String(), `"daemon": true`) {
			t.Errorf("at %v: %v, %v, %d bytes\n%s%s", at, err, readErr, len(got), &cp.stdout,
				&cp.stderr)
		}
		os.Remove(out)
		server.end(t)
	}
}

// TestCopyOnDaemon: directories are copied to and from a server on the daemon, and by a client on it.
func TestCopyOnDaemon(t *testing.T) {
	h := newDaemonHosts(t)
	tree := filepath.Join(h.dir, "tree")
	if err := errors.Join(os.Mkdir(tree, 0o777), os.Chmod(tree, 0o777)); err != nil {
		t.Fatal(err)
	}
	srv := h.user(t, "serve", tree, "--socket="+h.socket, "--json",
		"--listen="+h.A.Addr4.Addr().String()+":7301")
	r, w := io.Pipe()
	srv.Cmd.Stdout = io.MultiWriter(w, &srv.stdout)
	srv.start(t, h.A)
	at := listeningAt(t, srv, r)
	other, there := serving(t, h.B, "--transport=kernel", t.TempDir(),
		"--listen="+h.B.Addr4.Addr().String()+":7302")
	from, back := filepath.Join(h.dir, "from"), filepath.Join(h.dir, "back")
	content := make([]byte, 2*transfer.PieceLen+77)
	rand.NewChaCha8([32]byte{3}).Read(content)
	err := errors.Join(os.MkdirAll(filepath.Join(from, "d"), 0o755), os.Mkdir(back, 0o777),
		os.Chmod(back, 0o777), os.WriteFile(filepath.Join(from, "d", "large"), content, 0o644),
		os.WriteFile(filepath.Join(from, "d", "none"), nil, 0o644))
	if err != nil {
		t.Fatal(err)
	}
	copied := func(c *command, host *topo.Host) {
		t.Helper()
		if err := c.run(t, host); err != nil {
			t.Fatalf("%v: %v\n%s\n%s", c.Args, err, &c.stderr, &srv.stderr)
		}
	}
	copied(onHost(t, h.B, "cp", "--transport=kernel", "-r", filepath.Join(from, "d"), at+"/"), h.B)
	copied(onHost(t, h.B, "cp", "--transport=kernel", "-r", "--checksum", at+"/d",
		t.TempDir()), h.B)
	copied(h.user(t, "cp", "--socket="+h.socket, "-r", filepath.Join(from, "d"), there+"/"), h.A)
	copied(h.user(t, "cp", "--socket="+h.socket, "-r", there+"/d", back), h.A)
	for _, dir := range []string{tree, back} {
		got, err := os.ReadFile(filepath.Join(dir, "d", "large"))
		if err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s: %d bytes, %v", dir, len(got), err)
		}
	}
	h.resumes(t, there, content)
	srv.end(t)
	other.end(t)
}

// resumes gets a file as a user, after a partial copy, over several connections of the daemon's device: the partial
// data must not be transferred again.
func (h *daemonHosts) resumes(t *testing.T, there string, content []byte) {
	t.Helper()
	dir := filepath.Join(h.dir, "again")
	part := filepath.Join(dir, ".large.xwarp-partial")
	if err := errors.Join(os.Mkdir(dir, 0o777), os.Chmod(dir, 0o777),
		os.WriteFile(part, content[:transfer.PieceLen], 0o600),
		os.Chown(part, nobody, nobody)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		fmt.Sprintf(`"files": 1, "unchanged": 0, "kept": %d`, transfer.PieceLen),
		`"files": 0, "unchanged": 1, "kept": 0`} {
		c := h.user(t, "cp", "--socket="+h.socket, "--connections=3", "--checksum", "--json",
			there+"/d/large", dir)
		if err := c.run(t, h.A); err != nil {
			t.Fatalf("%v\n%s", err, &c.stderr)
		}
		var v cpResult
		if err := json.Unmarshal(c.stdout.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf(`"files": %d, "unchanged": %d, "kept": %d`, v.Files, v.Unchanged,
			v.Kept); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if got, err := os.ReadFile(filepath.Join(dir, "large")); err != nil ||
		!bytes.Equal(got, content) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}
