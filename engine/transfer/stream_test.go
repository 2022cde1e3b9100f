package transfer_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"xwarp/engine/transfer"
)

// streamed stores content as a stream, with a client of its own.
func (b *bench) streamed(content []byte) {
	b.t.Helper()
	n, err := b.dial().StoreFrom(patience(b.t), "file", 0o640, bytes.NewReader(content))
	if err != nil || n != int64(len(content)) {
		b.t.Fatalf("store of %d bytes: %d, %v", len(content), n, err)
	}
}

// has checks the content of the server's file, on its disk and as a client sees it, and that nothing else is there.
func (b *bench) has(dir string, content []byte) {
	b.t.Helper()
	got, err := os.ReadFile(dir + "/file")
	if err != nil || !bytes.Equal(got, content) {
		b.t.Errorf("the file has %d bytes, %v; want the %d that were stored", len(got), err,
			len(content))
	}
	var out bytes.Buffer
	n, err := b.dial().FetchTo(patience(b.t), "file", &out)
	if err != nil || n != int64(len(content)) || !bytes.Equal(out.Bytes(), content) {
		b.t.Errorf("fetched: %d of %d bytes, %v", n, len(content), err)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
		b.t.Errorf("the directory has %v, %v", names, err)
	}
}

// A stream of any length is stored and fetched, and replaces a longer or shorter one, over one connection.
func TestStreamIsStored(t *testing.T) {
	const room = 5 << 20
	for _, n := range []int{0, 1, 4096, 1<<20 - 1, 1 << 20, 1<<20 + 1, room} {
		b, dir := serve(t, transfer.TreeConfig{Size: 2 * room}, nil)
		content := noise(n)
		b.streamed(content)
		b.has(dir, content)
		c := b.dial()
		for _, again := range [][]byte{content[:n/2], content} {
			_, err := c.StoreFrom(patience(t), "file", 0o600, bytes.NewReader(again))
			if err != nil {
				t.Fatalf("%d bytes over %d: %v", len(again), n, err)
			}
			b.has(dir, again)
			var got bytes.Buffer
			if _, err := c.FetchTo(patience(t), "file", &got); err != nil ||
				!bytes.Equal(got.Bytes(), again) {
				t.Fatalf("fetched over the same connection: %d bytes, %v", got.Len(), err)
			}
		}
		if st, err := os.Stat(dir + "/file"); err != nil || st.Mode().Perm() != 0o600 ||
			time.Since(st.ModTime()) > time.Hour {
			t.Errorf("%v, %v", st, err)
		}
	}
}

type failing struct {
	r   io.Reader
	err error
}

func (f failing) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	if err == io.EOF {
		err = f.err
	}
	return n, err
}

// If a stream ends early because the directory is full, the input fails, or the connection ends, the older file stays.
// Nothing remains of the stream, and its bytes are free.
func TestFailedStreamChangesNothing(t *testing.T) {
	const room = 12 << 20
	b, dir := serve(t, transfer.TreeConfig{Size: room}, nil)
	content := noise(2 << 20)
	b.streamed(content)
	other := bytes.Repeat([]byte{0xee}, room)
	broken := errors.New("disk on fire")
	for _, tc := range []struct {
		name string
		r    io.Reader
		want string
	}{
		{"more bytes than the directory may have", bytes.NewReader(other), "the directory uses"},
		{"input fails", failing{bytes.NewReader(other[:9<<20]), broken}, "disk on fire"},
	} {
		c := b.dial()
		_, err := c.StoreFrom(patience(t), "file", 0o600, tc.r)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
		if _, err := c.Stat(patience(t), "file"); err != nil {
			t.Errorf("%s ended the connection: %v", tc.name, err)
		}
		b.has(dir, content)
	}
	dev := device(t)
	c, err := transfer.Dial(patience(t), dev, b.srv.Addr(), 0)
	if err != nil {
		t.Fatal(err)
	}
	r, w := io.Pipe()
	done := make(chan error)
	go func() {
		_, err := c.StoreFrom(patience(t), "file", 0o600, r)
		done <- err
	}()
	w.Write(other[:9<<20])
	dev.Close()
	err = <-done
	w.Close()
	if err == nil {
		t.Error("a stream is stored without a connection")
	} else if strings.Contains(err.Error(), "reading the input") {
		t.Errorf("the end of the connection is blamed on the input: %v", err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) { // the server notices it later
		if names, _ := os.ReadDir(dir); len(names) == 1 || time.Now().After(end) {
			break
		}
	}
	b.has(dir, content)
	b.streamed(other[:room-len(content)]) // there is room for it beside the older file
}

// slow is a Writer whose first Write blocks until it is released.
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

// A fetch in progress reads one file to its end, although another replaces it.
func TestFetchedStreamIsNotTorn(t *testing.T) {
	b, dir := start(t, nil)
	before, after := noise(10<<20), bytes.Repeat([]byte{7}, 10<<20)
	b.streamed(before)
	out := &slow{begun: make(chan bool), goOn: make(chan bool)}
	got := make(chan error, 1)
	reader := b.dial()
	go func() {
		_, err := reader.FetchTo(patience(t), "file", out)
		got <- err
	}()
	<-out.begun
	b.streamed(after)
	b.has(dir, after)
	out.goOn <- true
	if err := <-got; err != nil || !bytes.Equal(out.Bytes(), before) {
		t.Errorf("fetched: %v, or not the file that was there when it began", err)
	}
}

// lateReader has input only when release is closed.
type lateReader struct {
	asked            chan struct{}
	release, written chan struct{}
}

func (r *lateReader) Read(b []byte) (int, error) {
	close(r.asked)
	<-r.release
	clear(b)
	close(r.written)
	return 0, io.EOF
}

// Input that arrives after the stream was cancelled, and its client closed, is read into memory that still exists.
func TestLateInputOfStream(t *testing.T) {
	b, dir := start(t, nil)
	c := b.dial()
	r := &lateReader{make(chan struct{}), make(chan struct{}), make(chan struct{})}
	ctx, cancel := context.WithCancel(patience(t))
	go func() { <-r.asked; cancel() }()
	if _, err := c.StoreFrom(ctx, "file", 0o600, r); !errors.Is(err, context.Canceled) {
		t.Errorf("StoreFrom: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	close(r.release)
	<-r.written
	if _, err := os.Stat(filepath.Join(dir, "file")); err == nil {
		t.Error("a cancelled stream is a file")
	}
}

// Only one connection at a time may write a stream: the bytes of two would be counted twice.
func TestStreamHasOneWriter(t *testing.T) {
	b, _ := start(t, nil)
	a := transfer.Attr{Kind: transfer.KindFile, Flags: transfer.FlagStream, Mode: 0o600}
	if _, err := b.dial().Store(patience(t), "file", a, 1, nil); err != nil {
		t.Fatal(err)
	}
	_, err := b.dial().Store(patience(t), "file", a, 1, nil)
	refused(t, err, transfer.CodeFile, "is writing it")
}
