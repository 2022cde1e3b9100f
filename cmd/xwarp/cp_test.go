package main

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/bench/topo"
)

// Directories are copied from host to host and back, on both transports.
func TestCopyPairings(t *testing.T) {
	src := t.TempDir()
	big := make([]byte, 20<<20+12345)
	rand.NewChaCha8([32]byte{6}).Read(big)
	write(t, src+"/big", big)
	write(t, src+"/sub/small", []byte("small"))
	for _, way := range []struct{ server, client string }{
		{"xdp", "xdp"}, {"kernel", "xdp"}, {"xdp", "kernel"},
	} {
		t.Run(way.client+" to "+way.server, func(t *testing.T) {
			net := hosts(t, topo.NoOffloads, topo.NoOffloads)
			dir, out := t.TempDir(), t.TempDir()
			srv, at := serving(t, net.B, append(transportArgs(way.server), dir,
				"--listen="+net.B.Addr4.Addr().String())...)
			for _, args := range [][]string{
				{"cp", "-r", "--connections=2", src, at + "/copy"},
				{"cp", "-r", at + "/copy", out + "/back"},
			} {
				c := onHost(t, net.A, append(transportArgs(way.client), args...)...)
				if err := c.run(t, net.A); err != nil {
					t.Fatalf("%q: %v\n%s\nserver: %s", args, err, &c.stderr, &srv.stdout)
				}
			}
			for _, name := range []string{"big", "sub/small"} {
				want, _ := os.ReadFile(filepath.Join(src, name))
				got, err := os.ReadFile(filepath.Join(out, "back", name))
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("%s has %d bytes, %v; want %d", name, len(got), err, len(want))
				}
			}
			srv.end(t)
		})
	}
}

func write(t *testing.T, name string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

var copies = flag.Int("copies", 12, "how many copies TestKilledCopies cuts off")

// TestKilledCopies kills the server or the client at random moments of copies in both directions. The file must have
// either the old or the new content, and the next copy, which resumes the partial file, must succeed.
func TestKilledCopies(t *testing.T) {
	const size = 24 << 20
	dir := t.TempDir()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	if err := os.MkdirAll(dir+"/there", 0o755); err != nil {
		t.Fatal(err)
	}
	old := bytes.Repeat([]byte("old"), 1000)
	content := make([]byte, size)
	srv := exporting(t, dir+"/there")
	took := 300 * time.Millisecond
	outcome := map[string]int{}
	for round := range *copies {
		from, to := dir+"/file", dir+"/there/file"
		args := []string{"cp", "--transport=kernel", from, srv.at + "/file"}
		if round%2 == 1 {
			from, to = to, from
			args = []string{"cp", "--transport=kernel", srv.at + "/file", to}
		}
		rand.NewChaCha8([32]byte{byte(round), byte(seed)}).Read(content)
		write(t, from, content)
		write(t, to, old)
		c := process(t, args...)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(random.Float64() * 1.2 * float64(took)))
		if round/2%2 == 0 {
			c.Process.Kill()
			c.Wait()
		} else {
			srv.Process.Kill()
			srv.Wait()
			c.Wait()
			srv = exporting(t, dir+"/there")
		}
		got, err := os.ReadFile(to)
		which := "mixed"
		switch {
		case err == nil && bytes.Equal(got, old):
			which = "old"
		case err == nil && bytes.Equal(got, content):
			which = "new"
		default:
			t.Errorf("round %d: the file has %d bytes, %v", round, len(got), err)
		}
		outcome[which]++
		for i := range args {
			if strings.HasPrefix(args[i], "127.0.0.1:") { // a new server has another port
				args[i] = srv.at + "/file"
			}
		}
		begin := time.Now()
		out, err := process(t, args...).CombinedOutput()
		for end := begin.Add(20 * time.Second); err != nil && bytes.Contains(out,
			[]byte("is writing it")) && time.Now().Before(end); {
			// The server has not noticed yet that the killed client is gone, or still handles its last data.
			out, err = process(t, args...).CombinedOutput()
		}
		took = max(time.Since(begin), 50*time.Millisecond)
		if got, e := os.ReadFile(to); err != nil || e != nil || !bytes.Equal(got, content) {
			t.Fatalf("round %d: again: %v\n%s", round, err, out)
		}
	}
	t.Logf("%v", outcome)
	srv.Process.Kill()
	srv.Wait()
}

// running is this test binary running as xwarp, in its own process.
type running struct {
	*exec.Cmd
	at string
}

func process(t *testing.T, args ...string) *running {
	t.Helper()
	c := &running{Cmd: exec.CommandContext(t.Context(), os.Args[0], args...)}
	c.Env = append(os.Environ(), asCommand+"=1")
	return c
}

// exporting starts a server that exports a directory.
func exporting(t *testing.T, dir string) *running {
	t.Helper()
	c := process(t, "serve", "--transport=kernel", "--listen=127.0.0.1:0", dir)
	startServer(t, c)
	return c
}

// startServer starts a server and reads its address.
func startServer(t *testing.T, c *running) {
	t.Helper()
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err == nil {
		_, err = fmt.Fscanf(out, "listening on %s", &c.at)
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() { // discards the lines about files
		var b [4096]byte
		for err == nil {
			_, err = out.Read(b[:])
		}
	}()
}

// TestCopyAfterKilledClient repeats a copy immediately after kill -9 of its client, and thus of its TCP. The server
// must detect that the client is gone, and not refuse the file.
func TestCopyAfterKilledClient(t *testing.T) {
	net := hosts(t, topo.NoOffloads, topo.NoOffloads)
	src, dir := t.TempDir()+"/big", t.TempDir()
	content := make([]byte, 64<<20)
	rand.NewChaCha8([32]byte{7}).Read(content)
	write(t, src, content)
	srv, at := serving(t, net.B, append(transportArgs("xdp"), dir,
		"--listen="+net.B.Addr4.Addr().String())...)
	args := append(transportArgs("xdp"), "cp", src, at+"/big")
	partial := dir + "/.big.xwarp-partial"
	killed := onHost(t, net.A, args...)
	killed.start(t, net.A)
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if st, err := os.Stat(partial); err == nil && st.Size() == int64(len(content)) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the copy does not begin: %s", &killed.stderr)
		}
	}
	killed.Process.Signal(unix.SIGSTOP)
	time.Sleep(300 * time.Millisecond) // until the server has nothing to send, so that no retransmission shows the loss
	killed.Process.Kill()
	killed.Wait()
	again := onHost(t, net.A, args...)
	if err := again.run(t, net.A); err != nil {
		t.Errorf("again: %v\n%s", err, &again.stderr)
	}
	if got, err := os.ReadFile(dir + "/big"); err != nil || !bytes.Equal(got, content) {
		t.Errorf("the file has %d bytes, %v", len(got), err)
	}
	srv.end(t)
}
