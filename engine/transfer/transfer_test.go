package transfer_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"xwarp/engine/sockets"
	"xwarp/engine/transfer"
	"xwarp/engine/verbs"
)

// bench is a server with a way to create clients, on kernel sockets over loopback.
type bench struct {
	t      *testing.T
	srv    *transfer.Server
	idle   time.Duration // the server's idle time
	stop   context.CancelFunc
	served chan error

	mu     sync.Mutex
	events []transfer.Event
}

func device(t *testing.T) verbs.Device {
	t.Helper()
	d, err := sockets.Open(sockets.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// start starts a server of an empty directory.
func start(t *testing.T, edit func(*transfer.ServerConfig)) (b *bench, dir string) {
	t.Helper()
	return serve(t, transfer.TreeConfig{}, edit)
}

// serve starts a server of a directory, by default an empty one.
func serve(t *testing.T, of transfer.TreeConfig, edit func(*transfer.ServerConfig)) (b *bench,
	dir string) {
	t.Helper()
	if of.Path == "" {
		of.Path = t.TempDir()
	}
	tree, err := transfer.OpenTree(of)
	if err != nil {
		t.Fatal(err)
	}
	b = &bench{t: t, served: make(chan error, 1)}
	cfg := transfer.ServerConfig{Device: device(t), Tree: tree, Event: func(e transfer.Event) {
		b.mu.Lock()
		b.events = append(b.events, e)
		b.mu.Unlock()
	}}
	if edit != nil {
		edit(&cfg)
	}
	b.idle = cfg.Idle
	if b.srv, err = transfer.Listen(cfg, netip.MustParseAddrPort("127.0.0.1:0")); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	b.stop = stop
	go func() { b.served <- b.srv.Serve(ctx) }()
	t.Cleanup(func() {
		b.end()
		tree.Close()
	})
	return b, of.Path
}

// end stops the server and waits for it.
func (b *bench) end() {
	b.stop()
	if b.served != nil {
		if err := <-b.served; err != nil {
			b.t.Errorf("Serve: %v", err)
		}
		b.served = nil
	}
}

func (b *bench) dial() *transfer.Client {
	b.t.Helper()
	c, err := transfer.Dial(patience(b.t), device(b.t), b.srv.Addr(), 0)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { c.Close() })
	return c
}

// patience is a context that ends before the test binary times out.
func patience(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func noise(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}

func refused(t *testing.T, err error, code transfer.Code, words string) {
	t.Helper()
	var r *transfer.RemoteError
	if !errors.As(err, &r) || r.Code != code || !strings.Contains(r.Text, words) {
		t.Errorf("error %v, want the server's code %d with %q", err, code, words)
	}
}

func TestTooManyClients(t *testing.T) {
	b, dir := start(t, func(c *transfer.ServerConfig) { c.MaxClients = 1 })
	c := b.dial()
	if _, err := c.StoreFrom(patience(t), "file", 0o600, strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	_, err := transfer.Dial(patience(t), device(t), b.srv.Addr(), 0)
	if err == nil || !strings.Contains(err.Error(), "REJECTED") {
		t.Errorf("second client: %v, want a rejection", err)
	}
	if _, err := c.StoreFrom(patience(t), "file", 0o600, strings.NewReader("y")); err != nil {
		t.Errorf("first client: %v", err)
	}
	if got, err := os.ReadFile(dir + "/file"); string(got) != "y" {
		t.Errorf("the file is %q, %v", got, err)
	}
}

// A client whose process is stopped keeps the name of its file only for the idle time.
func TestSilentClientLosesItsName(t *testing.T) {
	const idle = 300 * time.Millisecond
	b, dir := start(t, func(c *transfer.ServerConfig) { c.Idle = idle })
	mute, err := transfer.Dial(patience(t), device(t), b.srv.Addr(), time.Hour) // its Beats are ten minutes apart
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mute.Close() })
	r, w := io.Pipe()
	defer w.Close()
	go mute.StoreFrom(patience(t), "file", 0o600, r)
	w.Write([]byte("and then nothing"))
	live := b.dialBeating()
	for ctx := patience(t); ; time.Sleep(idle / 10) {
		_, err := live.StoreFrom(ctx, "file", 0o600, strings.NewReader("here"))
		if err == nil {
			break
		}
		if refused(t, err, transfer.CodeFile, "is writing it"); t.Failed() {
			t.FailNow()
		}
	}
	if got, err := os.ReadFile(dir + "/file"); string(got) != "here" {
		t.Errorf("the file is %q, %v", got, err)
	}
}

func TestShutdownTellsClients(t *testing.T) {
	b, _ := start(t, nil)
	c := b.dial()
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := c.StoreFrom(patience(t), "file", 0o600, r)
		done <- err
	}()
	w.Write([]byte("x"))
	b.end()
	w.Close()
	err := <-done
	refused(t, err, transfer.CodeShutdown, "the server is stopping")
}

// TestFetchThenClose: if the client closes right after a fetch, or after reading a listing, the server reports success,
// whichever it sees first: the end of the connection, or the acknowledgement of the last bytes.
func TestFetchThenClose(t *testing.T) {
	b, dir := start(t, nil)
	if err := os.WriteFile(dir+"/file", noise(64<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	const rounds = 100
	for range rounds {
		c := b.dial()
		if _, err := c.FetchTo(t.Context(), "file", io.Discard); err != nil {
			t.Fatal(err)
		}
		if list, err := c.List(t.Context(), "."); err != nil || len(list) != 1 {
			t.Fatalf("%v, %v", list, err)
		}
		c.Close()
	}
	b.end()
	if len(b.events) != rounds {
		t.Errorf("%d transfers, want %d", len(b.events), rounds)
	}
	for _, e := range b.events {
		if e.Err != nil || e.Bytes != 64<<10 {
			t.Fatalf("%+v", e)
		}
	}
}
