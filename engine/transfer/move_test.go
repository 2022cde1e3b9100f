package transfer

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"xwarp/engine/sockets"
	"xwarp/engine/verbs"
)

// treeServer serves a directory with a file "fetched" of a little more than three buffers, and returns the address.
func treeServer(t *testing.T, event func(Event)) (ctx context.Context, dev verbs.Device,
	at netip.AddrPort, dir string) {
	t.Helper()
	dev, err := sockets.Open(sockets.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	dir = t.TempDir()
	if err := os.WriteFile(dir+"/fetched", pattern(3*BufferLen+100), 0o644); err != nil {
		t.Fatal(err)
	}
	tree, err := OpenTree(TreeConfig{Path: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tree.Close() })
	ctx, at = servePatiently(t, ServerConfig{Device: dev, Tree: tree, Event: event})
	return ctx, dev, at, dir
}

// pattern returns n bytes that differ everywhere from those stepLen bytes further on.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i>>8) ^ byte(i) ^ byte(i/stepLen*37)
	}
	return b
}

// holds reports whether a file has the content want.
func holds(name string, want []byte) bool {
	got, err := os.ReadFile(name)
	return err == nil && bytes.Equal(got, want)
}

// TestErrorOfFileKeepsConnection: after an error of a file in the middle of a Move, all pending replies have arrived,
// so that the connection copies the next file. The events of the server have the errors of its own files only.
func TestErrorOfFileKeepsConnection(t *testing.T) {
	var failed atomic.Int32
	ctx, dev, at, dir := treeServer(t, func(e Event) {
		if e.Err != nil {
			failed.Add(1)
		}
	})
	c, err := Dial(ctx, dev, at, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	length := int64(3*BufferLen + 100)
	local := filepath.Join(t.TempDir(), "local")
	if err := os.WriteFile(local, pattern(BufferLen), 0o644); err != nil {
		t.Fatal(err)
	}
	short, err := os.Open(local)
	if err != nil {
		t.Fatal(err)
	}
	defer short.Close()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()

	store := func(f *os.File) (err error) {
		a := Attr{Kind: KindFile, Mode: 0o644, Length: uint64(length)}
		r, err := c.Store(ctx, "stored", a, 1, f)
		if err != nil {
			t.Fatal(err)
		}
		err = r.Move(ctx, 0, length)
		return errors.Join(err, r.Close(ctx, err == nil))
	}
	fetch := func(into *os.File, before func()) (err error) {
		r, err := c.Fetch(ctx, "fetched", into)
		if err != nil {
			t.Fatal(err)
		}
		before()
		err = r.Move(ctx, 0, length)
		return errors.Join(err, r.Close(ctx, false))
	}
	for name, failure := range map[string]func() error{
		"a local file that is short": func() error { return store(short) },
		"a local disk that is full":  func() error { return fetch(full, func() {}) },
		"a remote file that is short": func() error {
			return fetch(full, func() { os.Truncate(dir+"/fetched", 10) })
		},
	} {
		if err := failure(); err == nil || c.Over() {
			t.Fatalf("%s: %v, connection over: %v", name, err, c.Over())
		}
		if err := os.WriteFile(dir+"/fetched", pattern(int(length)), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := os.Create(filepath.Join(t.TempDir(), "out"))
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		if err := fetch(out, func() {}); err != nil {
			t.Fatalf("after %s: %v", name, err)
		}
		if !holds(out.Name(), pattern(int(length))) {
			t.Fatalf("after %s other bytes were fetched", name)
		}
		whole, err := os.Open(out.Name())
		if err != nil {
			t.Fatal(err)
		}
		defer whole.Close()
		if err := store(whole); err != nil {
			t.Fatalf("after %s: %v", name, err)
		}
		if !holds(dir+"/stored", pattern(int(length))) {
			t.Fatalf("after %s other bytes were stored", name)
		}
	}
	if n := failed.Load(); n != 1 {
		t.Errorf("the server reported %d errors, want that of the remote file", n)
	}
}

// TestCancelledMoveEndsConnection: canceling a Move ends the connection. Otherwise its pending replies would be taken
// for replies to later requests.
func TestCancelledMoveEndsConnection(t *testing.T) {
	ctx, dev, at, _ := treeServer(t, nil)
	c, err := Dial(ctx, dev, at, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r, err := c.Fetch(ctx, "fetched", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.askBuffer(ctx); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	if err := r.Move(ctx, 0, stepLen); !errors.Is(err, context.Canceled) || !c.Over() {
		t.Errorf("%v, connection over: %v", err, c.Over())
	}
}

// TestImpossibleBytes: a client that requests bytes outside its buffer or the file, or without a file, or that sends a
// wrong XXH64, loses its connection. The file stays unchanged.
func TestImpossibleBytes(t *testing.T) {
	ctx, dev, at, dir := treeServer(t, nil)
	const length = 1000
	const wraps = 1<<64 - 5
	for name, tc := range map[string]struct {
		open Type // 0: no file
		ask  Type
		m    Message
	}{
		"store without a file":      {0, TypeStoreBytes, Message{Length: 10}},
		"fetch without a file":      {0, TypeFetchBytes, Message{Length: 10}},
		"sum without a file":        {0, TypeSum, Message{Length: 10}},
		"store into a fetched file": {TypeFetch, TypeStoreBytes, Message{Length: 10}},
		"fetch of a stored file":    {TypeStore, TypeFetchBytes, Message{Length: 10}},
		"behind the file": {TypeStore, TypeStoreBytes,
			Message{Length: 10, Offset: length - 9}},
		"an offset that wraps": {TypeStore, TypeStoreBytes, Message{Length: 10, Offset: wraps}},
		"behind the buffer": {TypeStore, TypeStoreBytes,
			Message{Length: 10, Place: BufferLen - 9}},
		"a place that wraps":   {TypeFetch, TypeFetchBytes, Message{Length: 10, Place: wraps}},
		"a length that wraps":  {TypeFetch, TypeFetchBytes, Message{Length: wraps, Place: 10}},
		"longer than a buffer": {TypeFetch, TypeFetchBytes, Message{Length: BufferLen + 1}},
		"a Sum of too much":    {TypeFetch, TypeSum, Message{Length: maxSum + 1}},
		"another XXH64":        {TypeStore, TypeStoreBytes, Message{Length: 10, Check: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := newLink(dev, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			defer l.end.Close()
			if err := dev.Dial(ctx, at, l.end.QP, verbs.DialConfig{}); err != nil {
				t.Fatal(err)
			}
			l.startLoops()
			defer l.shut()
			ask := func(m Message, want Type) error {
				if err := l.postMessage(&m); err != nil {
					t.Fatal(err)
				}
				_, err := l.expect(ctx, want)
				return err
			}
			if err := ask(Message{Type: TypeBuffer}, TypeRegion); err != nil {
				t.Fatal(err)
			}
			if tc.open != 0 {
				m := Message{Type: tc.open, Path: "fetched"}
				if tc.open == TypeStore {
					m.Path, m.Attr = "stored", Attr{Kind: KindFile, Mode: 0o644, Length: length}
				}
				if err := ask(m, TypeOpened); err != nil {
					t.Fatal(err)
				}
			}
			tc.m.Type = tc.ask
			code := CodeSum
			if tc.m.Check == 0 {
				code, tc.m.Check = CodeProtocol, xxhash.Sum64(make([]byte, 10))
			}
			err = ask(tc.m, TypeBytes)
			if theirs := (*RemoteError)(nil); !errors.As(err, &theirs) || theirs.Code != code {
				t.Errorf("%v, want code %d", err, code)
			}
			if _, err := l.receive(ctx); !errors.Is(err, ErrPeerClosed) {
				t.Errorf("then %v, want the end of the connection", err)
			}
		})
	}
	if !holds(dir+"/fetched", pattern(3*BufferLen+100)) {
		t.Error("the file has changed")
	}
	if _, err := os.Stat(dir + "/stored"); err == nil {
		t.Error("a file that is not whole has its name")
	}
}
