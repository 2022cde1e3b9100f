package transfer_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"xwarp/engine/host/staging"
	"xwarp/engine/sockets"
	"xwarp/engine/transfer"
	"xwarp/engine/verbs"
)

// bench is a server with a way to create clients, on kernel sockets over loopback.
type bench struct {
	t      *testing.T
	dev    verbs.Device
	region *transfer.Region
	srv    *transfer.Server
	idle   time.Duration // of the server's configuration
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

func start(t *testing.T, region *transfer.Region, edit func(*transfer.ServerConfig)) *bench {
	t.Helper()
	b := &bench{t: t, dev: device(t), region: region, served: make(chan error, 1)}
	cfg := transfer.ServerConfig{Device: b.dev, Region: region, Event: func(e transfer.Event) {
		b.mu.Lock()
		b.events = append(b.events, e)
		b.mu.Unlock()
	}}
	if edit != nil {
		edit(&cfg)
	}
	b.idle = cfg.Idle
	var err error
	if b.srv, err = transfer.Listen(cfg, netip.MustParseAddrPort("127.0.0.1:0")); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	b.stop = stop
	go func() { b.served <- b.srv.Serve(ctx) }()
	t.Cleanup(func() {
		b.end()
		if region != nil {
			region.Close()
		}
	})
	return b
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

func memory(t *testing.T, n int64) *transfer.Region {
	t.Helper()
	r, err := transfer.NewRegion(n)
	if err != nil {
		t.Fatal(err)
	}
	return r
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

// get returns the server's content as seen by a new client.
func (b *bench) get(length int64) ([]byte, error) {
	c := b.dial()
	defer c.Close()
	var buf bytes.Buffer
	s, err := c.Get(patience(b.t), &buf, length)
	if err == nil && (s.Bytes != int64(buf.Len()) || s.Sum != sha256.Sum256(buf.Bytes())) {
		b.t.Errorf("summary %+v of %d bytes", s, buf.Len())
	}
	return buf.Bytes(), err
}

func (b *bench) want(content []byte) {
	b.t.Helper()
	got, err := b.get(0)
	if err != nil || !bytes.Equal(got, content) {
		b.t.Errorf("get: %d bytes, %v; want the %d of the put", len(got), err, len(content))
	}
}

func refused(t *testing.T, err error, code transfer.Code, words string) {
	t.Helper()
	var r *transfer.RemoteError
	if !errors.As(err, &r) || r.Code != code || !strings.Contains(r.Text, words) {
		t.Errorf("error %v, want the server's code %d with %q", err, code, words)
	}
}

func TestPutGet(t *testing.T) {
	const room = 5 << 20
	for _, n := range []int{0, 1, 4096, 1<<20 - 1, 1 << 20, 1<<20 + 1, room} {
		b := start(t, memory(t, room), nil)
		c := b.dial()
		content := noise(n)
		s, err := c.Put(patience(t), bytes.NewReader(content), int64(n))
		if err != nil || s.Bytes != int64(n) || s.Sum != sha256.Sum256(content) {
			t.Fatalf("put of %d: %+v, %v", n, s, err)
		}
		b.want(content)
		// A connection can be reused, and shorter content replaces longer content.
		if _, err := c.Put(patience(t), bytes.NewReader(content[:n/2]), -1); err != nil {
			t.Fatalf("second put: %v", err)
		}
		var again bytes.Buffer
		if _, err := c.Get(patience(t), &again, 0); err != nil ||
			!bytes.Equal(again.Bytes(), content[:n/2]) {
			t.Fatalf("get on the same connection: %d bytes, %v", again.Len(), err)
		}
	}
}

func TestRefusals(t *testing.T) {
	b := start(t, memory(t, 1<<20), nil)
	_, err := b.get(0)
	refused(t, err, transfer.CodeEmpty, "the region is empty")
	raw, err := b.get(100)
	if err != nil || !bytes.Equal(raw, make([]byte, 100)) {
		t.Errorf("raw memory: %v, %v", raw, err)
	}
	content := noise(1000)
	if _, err := b.dial().Put(patience(t), bytes.NewReader(content), 1000); err != nil {
		t.Fatal(err)
	}
	_, err = b.get(1<<20 + 1)
	refused(t, err, transfer.CodeTooLarge, "the region has 1048576")
	_, err = b.dial().Put(patience(t), bytes.NewReader(noise(1<<20+1)), 1<<20+1)
	refused(t, err, transfer.CodeTooLarge, "larger --size")
	b.want(content)
}

// If a put ends early for any reason, the content stays.
func TestFailedPutChangesNothing(t *testing.T) {
	b := start(t, memory(t, 3<<20), nil)
	content := noise(2 << 20)
	if _, err := b.dial().Put(patience(t), bytes.NewReader(content), -1); err != nil {
		t.Fatal(err)
	}
	other := bytes.Repeat([]byte{0xee}, 4<<20)
	broken := errors.New("disk on fire")
	for _, tc := range []struct {
		name   string
		r      io.Reader
		length int64
		want   string
	}{
		{"too long, length unknown", bytes.NewReader(other), -1,
			"more bytes than the server's region"},
		{"input fails", failing{bytes.NewReader(other[:2<<20]), broken}, -1, "disk on fire"},
		{"input shrank", bytes.NewReader(other[:1<<20]), 2 << 20, "ended after 1048576 of 2097152"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := b.dial().Put(patience(t), tc.r, tc.length)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
			b.want(content)
		})
	}
	t.Run("client vanishes", func(t *testing.T) {
		dev := device(t)
		c, err := transfer.Dial(patience(t), dev, b.srv.Addr(), 0)
		if err != nil {
			t.Fatal(err)
		}
		r, w := io.Pipe()
		done := make(chan error)
		go func() {
			_, err := c.Put(patience(t), r, -1)
			r.Close() // a failed put reads no more input
			done <- err
		}()
		w.Write(other[:2<<20])
		dev.Close()
		w.Write(other[:1<<20])
		w.Close()
		if err := <-done; err == nil {
			t.Error("put succeeded without a connection")
		} else if strings.Contains(err.Error(), "reading the input") {
			t.Errorf("the connection's end is blamed on the input: %v", err)
		}
		b.want(content)
	})
}

// A put waits while another is in progress, and proceeds when that one fails.
func TestPutsTakeTurns(t *testing.T) {
	b := start(t, memory(t, 1<<20), nil)
	first, second := b.dial(), b.dial()
	r, w := io.Pipe()
	firstDone := make(chan error, 1)
	go func() {
		_, err := first.Put(patience(t), r, -1)
		firstDone <- err
	}()
	w.Write([]byte("the first")) // accepted: so the first put got its region
	waiting := make(chan bool, 1)
	second.Waiting = func() { waiting <- true }
	secondDone := make(chan error, 1)
	go func() {
		_, err := second.Put(patience(t), strings.NewReader("the second"), -1)
		secondDone <- err
	}()
	<-waiting
	w.CloseWithError(errors.New("never mind"))
	if err := <-firstDone; err == nil {
		t.Error("first put succeeded")
	}
	if err := <-secondDone; err != nil {
		t.Errorf("second put: %v", err)
	}
	b.want([]byte("the second"))
}

// slow is a reader's output that blocks until it is released.
type slow struct {
	bytes.Buffer
	begun chan bool
	goOn  chan bool
	once  sync.Once
}

func (s *slow) Write(p []byte) (int, error) {
	s.once.Do(func() { s.begun <- true; <-s.goOn })
	return s.Buffer.Write(p)
}

// A get in progress reads one content to its end, despite a later put.
func TestGetIsNotTorn(t *testing.T) {
	b := start(t, memory(t, 64<<20), nil)
	before, after := noise(40<<20), bytes.Repeat([]byte{7}, 40<<20)
	if _, err := b.dial().Put(patience(t), bytes.NewReader(before), -1); err != nil {
		t.Fatal(err)
	}
	out := &slow{begun: make(chan bool), goOn: make(chan bool)}
	got := make(chan error, 1)
	reader, writer := b.dial(), b.dial()
	go func() {
		_, err := reader.Get(patience(t), out, 0)
		got <- err
	}()
	<-out.begun
	put := make(chan error, 1)
	go func() {
		_, err := writer.Put(patience(t), bytes.NewReader(after), -1)
		put <- err
	}()
	out.goOn <- true
	if err := <-got; err != nil || !bytes.Equal(out.Bytes(), before) {
		t.Errorf("get: %v, or not the content that was there when it began", err)
	}
	if err := <-put; err != nil {
		t.Errorf("put: %v", err)
	}
	b.want(after)
}

func TestTooManyClients(t *testing.T) {
	b := start(t, memory(t, 1<<20), func(c *transfer.ServerConfig) { c.MaxClients = 1 })
	c := b.dial()
	if _, err := c.Put(patience(t), strings.NewReader("x"), 1); err != nil {
		t.Fatal(err)
	}
	_, err := transfer.Dial(patience(t), device(t), b.srv.Addr(), 0)
	if err == nil || !strings.Contains(err.Error(), "REJECTED") {
		t.Errorf("second client: %v, want a rejection", err)
	}
	if _, err := c.Put(patience(t), strings.NewReader("y"), 1); err != nil {
		t.Errorf("first client: %v", err)
	}
}

// A client whose process is stopped keeps its turn only for the idle time.
func TestSilentClientLosesItsTurn(t *testing.T) {
	b := start(t, memory(t, 1<<20), func(c *transfer.ServerConfig) {
		c.Idle = 300 * time.Millisecond
	})
	mute, err := transfer.Dial(patience(t), device(t), b.srv.Addr(), time.Hour) // its Beats are an hour apart
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mute.Close() })
	r, w := io.Pipe()
	defer w.Close()
	go mute.Put(patience(t), r, -1)
	w.Write([]byte("and then nothing"))
	live, err := transfer.Dial(patience(t), device(t), b.srv.Addr(), 300*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { live.Close() })
	if _, err := live.Put(patience(t), strings.NewReader("here"), -1); err != nil {
		t.Errorf("the other client: %v", err)
	}
	b.want([]byte("here"))
}

func TestShutdownTellsClients(t *testing.T) {
	b := start(t, memory(t, 1<<20), nil)
	c := b.dial()
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := c.Put(patience(t), r, -1)
		done <- err
	}()
	w.Write([]byte("x"))
	b.end()
	w.Close()
	err := <-done
	refused(t, err, transfer.CodeShutdown, "the server is stopping")
}

func TestFileRegion(t *testing.T) {
	name := filepath.Join(t.TempDir(), "region")
	if _, err := transfer.OpenRegion(transfer.FileConfig{Path: name}); err == nil ||
		!strings.Contains(err.Error(), "--size") {
		t.Errorf("empty file without size: %v", err)
	}
	content := noise(300_000)
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := transfer.OpenRegion(transfer.FileConfig{Path: name, Size: 1000}); err == nil ||
		!strings.Contains(err.Error(), "300000 bytes") {
		t.Errorf("region smaller than its file: %v", err)
	}
	r, err := transfer.OpenRegion(transfer.FileConfig{Path: name, Size: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := transfer.OpenRegion(transfer.FileConfig{Path: name, Size: 1 << 20}); err == nil ||
		!errors.Is(err, staging.ErrBusy) {
		t.Errorf("the same file twice: %v", err)
	}
	b := start(t, r, nil)
	b.want(content)
	if _, err := b.dial().Put(patience(t), bytes.NewReader(content[:777]), -1); err != nil {
		t.Fatal(err)
	}
	b.want(content[:777])
	b.end()
	r.Close()
	got, err := os.ReadFile(name)
	if err != nil || !bytes.Equal(got, content[:777]) {
		t.Errorf("the file has %d bytes after Close, %v; want the 777 of the put", len(got),
			err)
	}
}

func TestOutput(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "out")
	files := func() int {
		e, _ := os.ReadDir(dir)
		return len(e)
	}
	write := func(text string) *transfer.Output {
		o, err := transfer.CreateOutput(name)
		if err != nil {
			t.Fatal(err)
		}
		o.WriteString(text)
		return o
	}
	if err := write("one").Commit(); err != nil {
		t.Fatal(err)
	}
	write("two").Abort()
	if b, err := os.ReadFile(name); string(b) != "one" || err != nil || files() != 1 {
		t.Errorf("after Abort: %q, %v, %d files", b, err, files())
	}
	os.Chmod(name, 0o640)
	link := filepath.Join(dir, "link")
	os.Symlink(name, link)
	o, err := transfer.CreateOutput(link)
	if err != nil {
		t.Fatal(err)
	}
	o.WriteString("three")
	if err := o.Commit(); err != nil {
		t.Fatal(err)
	}
	st, _ := os.Lstat(link)
	b, _ := os.ReadFile(name)
	if string(b) != "three" || st.Mode()&os.ModeSymlink == 0 {
		t.Errorf("through a link: %q, mode of the link %v", b, st.Mode())
	}
	if st, _ := os.Stat(name); st.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, want that of the older file", st.Mode())
	}
	if err := os.Lchown(link, 65534, 65534); err != nil {
		t.Fatalf("this test needs root: %v", err)
	}
	if _, err := transfer.CreateOutput(link); err == nil ||
		!strings.Contains(err.Error(), "owned by user 65534") {
		t.Errorf("through a link of another user: %v", err)
	}
}

// TestGetThenClose: if the client closes right after a get, the get must also count as successful on the server,
// whichever it sees first: the end of the connection, or the acknowledgement of the last bytes.
func TestGetThenClose(t *testing.T) {
	b := start(t, memory(t, 64<<10), nil)
	const rounds = 100
	for range rounds {
		c := b.dial()
		if _, err := c.Get(t.Context(), io.Discard, 64<<10); err != nil {
			t.Fatal(err)
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
