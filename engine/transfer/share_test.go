package transfer_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"xwarp/engine/transfer"
)

// brief is the idle time of strict servers, whose clients stall, and of their clients. A shorter one would fail on a
// busy machine.
const brief = time.Second

func hurry(c *transfer.ServerConfig) { c.Idle = brief }

// stalled starts a put of length bytes that makes no progress: only its Beats arrive. The channel receives its result.
func (b *bench) stalled(length int64) <-chan error {
	b.t.Helper()
	c := b.dialBeating()
	r, w := io.Pipe()
	b.t.Cleanup(func() { w.Close() })
	done := make(chan error, 1)
	go func() {
		_, err := c.Put(patience(b.t), r, length)
		done <- err
	}()
	w.Write([]byte("and then nothing")) // accepted: so the put got its memory
	return done
}

// dialBeating creates a client that sends Beats in time for a strict server, if the server is strict.
func (b *bench) dialBeating() *transfer.Client {
	b.t.Helper()
	c, err := transfer.Dial(patience(b.t), device(b.t), b.srv.Addr(), b.idle)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { c.Close() })
	return c
}

func (b *bench) put(content []byte, length int64) {
	b.t.Helper()
	if _, err := b.dialBeating().Put(patience(b.t), bytes.NewReader(content), length); err != nil {
		b.t.Fatal(err)
	}
}

// A stalled put keeps its memory until another client waits for it. Beats do not count as progress.
func TestStalledPutYields(t *testing.T) {
	b := start(t, memory(t, 1<<20), hurry)
	held := b.stalled(1 << 19)
	b.put([]byte("small"), 5) // there is memory for it
	b.want([]byte("small"))
	select {
	case err := <-held:
		t.Fatalf("the put ended without a waiter: %v", err)
	default:
	}
	b.put([]byte("large"), -1)
	b.want([]byte("large"))
	refused(t, <-held, transfer.CodeYield, "others wait")
}

// stuck is an output that blocks forever, so that its get never sends Done.
type stuck struct{ begun, end chan bool }

func (s *stuck) Write(p []byte) (int, error) {
	s.begun <- true
	<-s.end
	return 0, io.ErrClosedPipe
}

// stuckGet starts a get that stalls.
func (b *bench) stuckGet() <-chan error {
	b.t.Helper()
	c := b.dialBeating()
	out := &stuck{make(chan bool, 1), make(chan bool)}
	done := make(chan error, 1)
	go func() {
		_, err := c.Get(patience(b.t), out, 0)
		done <- err
	}()
	<-out.begun
	b.t.Cleanup(func() { close(out.end); <-done })
	return done
}

// A get that never ends does not block puts: it keeps the content of its start until a put needs the memory.
func TestStalledGetHoldsUpNobody(t *testing.T) {
	const size = 4 << 20
	b := start(t, memory(t, size), nil)
	b.put(noise(size), size)
	b.stuckGet()
	for range 4 { // each is as long as the region: there is no memory for all replaced contents
		b.stuckGet()
		b.put(noise(size), size)
	}
	b.want(noise(size))
	b.end()
	if err := b.region.Close(); err != nil {
		t.Errorf("after all gets: %v", err)
	}
	yielded := 0
	for _, e := range b.events {
		if e.Op == "get" && e.Err != nil && strings.Contains(e.Err.Error(), "was replaced") {
			yielded++
		}
	}
	if yielded == 0 {
		t.Errorf("no get had to give up its content: %v", b.events)
	}
}

// With a file, a get that stalls on the mapping keeps a put from the disk only for the idle time, and does not delay
// other gets.
func TestStalledGetOfFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "region")
	if err := os.WriteFile(name, noise(3<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := transfer.OpenRegion(transfer.FileConfig{Path: name})
	if err != nil {
		t.Fatal(err)
	}
	b := start(t, r, hurry)
	b.stuckGet()
	content := bytes.Repeat([]byte("new"), 1000)
	b.put(content, -1) // returns when it is on disk
	b.want(content)
	if got, err := os.ReadFile(name); err != nil || !bytes.HasPrefix(got, content) {
		t.Errorf("the file does not have the put's content: %v", err)
	}
	b.put([]byte("last"), 4)
	b.want([]byte("last"))
	b.end()
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(name); err != nil || string(got) != "last" {
		t.Errorf("the file has %d bytes after Close, %v", len(got), err)
	}
}

// While a get reads the file's mapping, a put is visible to others at once, and the get still reads the content of its
// start.
func TestFileContentIsNotTorn(t *testing.T) {
	name := filepath.Join(t.TempDir(), "region")
	before, after := noise(40<<20), bytes.Repeat([]byte{7}, 30<<20)
	if err := os.WriteFile(name, before, 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := transfer.OpenRegion(transfer.FileConfig{Path: name})
	if err != nil {
		t.Fatal(err)
	}
	b := start(t, r, nil)
	out := &slow{begun: make(chan bool), goOn: make(chan bool)}
	got, put := make(chan error, 1), make(chan error, 1)
	reader, writer := b.dial(), b.dial()
	go func() {
		_, err := reader.Get(patience(t), out, 0)
		got <- err
	}()
	<-out.begun
	go func() {
		_, err := writer.Put(patience(t), bytes.NewReader(after), -1)
		put <- err
	}()
	for r.Length() != int64(len(after)) && len(put) == 0 {
		time.Sleep(time.Millisecond)
	}
	b.want(after)
	out.goOn <- true
	if err := <-got; err != nil || !bytes.Equal(out.Bytes(), before) {
		t.Errorf("get: %v, or not the content that was there when it began", err)
	}
	if err := <-put; err != nil {
		t.Errorf("put: %v", err)
	}
	b.want(after)
}

// An idle time close to zero is short, and does not end the process.
func TestShortestIdle(t *testing.T) {
	b := start(t, memory(t, 1), func(c *transfer.ServerConfig) { c.Idle = time.Nanosecond })
	c, err := transfer.Dial(patience(t), device(t), b.srv.Addr(), time.Nanosecond)
	if err == nil {
		err = c.Close()
	}
	if err != nil {
		t.Error(err)
	}
}

// A client without requests keeps its place only until another client needs it.
func TestIdleClientMakesRoom(t *testing.T) {
	b := start(t, memory(t, 1<<20), func(c *transfer.ServerConfig) { hurry(c); c.MaxClients = 1 })
	b.dialBeating()
	for {
		c, err := transfer.Dial(patience(t), device(t), b.srv.Addr(), brief)
		if err == nil {
			c.Close()
			return
		}
		if patience(t).Err() != nil || !strings.Contains(err.Error(), "REJECTED") {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// A client that stalls while writing a file keeps its name only until another needs it. The next writer resumes the
// partial file.
func TestStalledWriterLosesItsName(t *testing.T) {
	tree, err := transfer.OpenTree(transfer.TreeConfig{Path: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tree.Close() })
	b := start(t, nil, func(c *transfer.ServerConfig) { hurry(c); c.Tree = tree })
	local, err := os.Create(filepath.Join(t.TempDir(), "local"))
	if err == nil {
		err = local.Truncate(transfer.PieceLen)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { local.Close() })
	a := transfer.Attr{Kind: transfer.KindFile, Mode: 0o600, Length: transfer.PieceLen}
	stalled := b.dialBeating()
	held, err := stalled.Store(patience(t), "wanted", a, 1, local)
	if err == nil {
		err = held.Move(patience(t), 0, transfer.PieceLen)
	}
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * brief)
	if err := held.Move(patience(t), 0, transfer.PieceLen); err != nil {
		t.Fatalf("the writer without a waiter: %v", err)
	}
	next := b.dialBeating()
	for ctx := patience(t); ; time.Sleep(brief / 10) {
		f, err := next.Store(ctx, "wanted", a, 2, local)
		if err == nil {
			if !f.Resumed() {
				t.Error("the other client's data is lost")
			}
			if err := f.Close(ctx, true); err != nil {
				t.Error(err)
			}
			break
		}
		refused(t, err, transfer.CodeFile, "is writing it")
		if t.Failed() {
			t.FailNow()
		}
	}
	refused(t, held.Move(patience(t), 0, transfer.PieceLen), transfer.CodeYield, "others wait")
}
