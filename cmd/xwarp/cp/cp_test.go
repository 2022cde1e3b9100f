package cp

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"xwarp/engine/sockets"
	"xwarp/engine/transfer"
	"xwarp/engine/verbs"
)

// bench is a server with a directory, with clients on kernel sockets over loopback.
type bench struct {
	t     *testing.T
	dir   string
	at    netip.AddrPort
	dev   verbs.Device
	tree  *transfer.Tree
	notes []string

	mu     sync.Mutex
	events []transfer.Event
}

func start(t *testing.T, cfg transfer.TreeConfig) *bench {
	t.Helper()
	return serving(t, t.TempDir(), cfg)
}

// serving starts a server that exports the directory dir. start does the same with a new directory.
func serving(t *testing.T, dir string, cfg transfer.TreeConfig) *bench {
	t.Helper()
	b := &bench{t: t, dir: dir}
	cfg.Path = b.dir
	tree, err := transfer.OpenTree(cfg)
	if err != nil {
		t.Fatal(err)
	}
	b.tree = tree
	if b.dev, err = sockets.Open(sockets.Config{}); err != nil {
		t.Fatal(err)
	}
	srv, err := transfer.Listen(transfer.ServerConfig{Device: b.dev, Tree: tree,
		Event: func(e transfer.Event) {
			b.mu.Lock()
			b.events = append(b.events, e)
			b.mu.Unlock()
		}}, netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	b.at = srv.Addr()
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := errors.Join(<-served, tree.Close(), b.dev.Close()); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *bench) dial(ctx context.Context) (*transfer.Client, error) {
	return transfer.Dial(ctx, b.dev, b.at, 0)
}

// config returns a Config with a number of connections.
func (b *bench) config(connections int) Config {
	b.notes = nil
	return Config{
		Dial: b.dial, Connections: connections, Recursive: true,
		Progress: func(done, total int64) {
			if done > total {
				b.t.Errorf("%d of %d bytes are done", done, total)
			}
		},
		Note: func(text string) {
			b.mu.Lock()
			b.notes = append(b.notes, text)
			b.mu.Unlock()
		},
	}
}

func patience(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// fill creates a tree of files, some of them longer than a piece.
func fill(t *testing.T, dir string) {
	t.Helper()
	random := rand.NewChaCha8([32]byte{3})
	for i, n := range []int{0, 1, 4096, transfer.PieceLen - 1, transfer.PieceLen,
		2*transfer.PieceLen + 12345, 100, 200, 300} {
		name := filepath.Join(dir, strings.Repeat("sub/", i%3), fmt.Sprintf("file %d é", i))
		b := make([]byte, n)
		random.Read(b)
		when := time.Unix(1e9+int64(i), 123456789)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755),
			os.WriteFile(name, b, fs.FileMode(0o600+i)), os.Chtimes(name, when, when)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(dir+"/empty/inside", 0o755); err != nil {
		t.Fatal(err)
	}
}

// image returns the names, modes, times and contents of a tree.
func image(t *testing.T, dir string) map[string]string {
	t.Helper()
	m := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := e.Info()
		rel, _ := filepath.Rel(dir, name)
		m[rel] = st.Mode().String()
		if e.Type().IsRegular() {
			b, err := os.ReadFile(name)
			m[rel] += fmt.Sprintf(" %v %d %x", st.ModTime().UnixNano(), len(b), sha256.Sum256(b))
			return err
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func same(t *testing.T, a, b string) {
	t.Helper()
	if d := cmp.Diff(image(t, a), image(t, b)); d != "" {
		t.Errorf("%s and %s (-, +):\n%s", a, b, d)
	}
}

// TestTrees copies trees to a server and back, over one connection and over several. They must stay the same, and a
// second copy must transfer nothing. With Checksum, it must transfer only a file whose content changed but not its
// length and time.
func TestTrees(t *testing.T) {
	for _, connections := range []int{1, 4} {
		b := start(t, transfer.TreeConfig{})
		src, out := t.TempDir()+"/src", t.TempDir()+"/out"
		fill(t, src)
		byteCount := int64(4*transfer.PieceLen + 12345 + 4096 + 600)
		r, err := Up(patience(t), b.config(connections), []string{src}, ".")
		if want := (Result{Files: 9, Bytes: byteCount}); err != nil || r != want {
			t.Fatalf("%+v, %v, want %+v; %q", r, err, want, b.notes)
		}
		same(t, src, b.dir+"/src")
		r, err = Up(patience(t), b.config(connections), []string{src}, ".")
		if want := (Result{Unchanged: 9}); err != nil || r != want {
			t.Errorf("again: %+v, %v, want %+v", r, err, want)
		}
		r, err = Down(patience(t), b.config(connections), []string{"src"}, out)
		if want := (Result{Files: 9, Bytes: byteCount}); err != nil || r != want {
			t.Fatalf("%+v, %v, want %+v; %q", r, err, want, b.notes)
		}
		same(t, src, out)
		cfg := b.config(connections)
		cfg.Checksum = true
		changed := out + "/sub/sub/file 5 é" // with the same length and time
		f, err := os.OpenFile(changed, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		st, _ := f.Stat()
		f.WriteAt([]byte("changed"), transfer.PieceLen)
		f.Close()
		os.Chtimes(changed, st.ModTime(), st.ModTime())
		r, err = Down(patience(t), cfg, []string{"src"}, filepath.Dir(out)+"/out2")
		if err != nil || r.Files != 9 {
			t.Errorf("%+v, %v", r, err)
		}
		if err := os.Rename(out, filepath.Dir(out)+"/src"); err != nil {
			t.Fatal(err)
		}
		r, err = Down(patience(t), cfg, []string{"src"}, filepath.Dir(out))
		if err != nil || r.Files != 1 || r.Unchanged != 8 {
			t.Errorf("with checksums: %+v, %v, want one file", r, err)
		}
		same(t, src, filepath.Dir(out)+"/src")
	}
}

// TestResume: a partial copy is resumed. Its pieces that have the right content are kept, and only the other bytes are
// transferred.
func TestResume(t *testing.T) {
	const length = 3*transfer.PieceLen + 5
	content := make([]byte, length)
	rand.NewChaCha8([32]byte{4}).Read(content)
	part := bytes.Clone(content[:2*transfer.PieceLen]) // a byte of the first piece is wrong
	part[7]++
	for _, up := range []bool{true, false} {
		b := start(t, transfer.TreeConfig{})
		here := t.TempDir()
		from, to := here, b.dir
		if !up {
			from, to = to, from
		}
		if err := errors.Join(os.WriteFile(from+"/big", content, 0o600),
			os.WriteFile(to+"/.big.xwarp-partial", part, 0o600),
			os.WriteFile(to+"/big", []byte("old"), 0o600)); err != nil {
			t.Fatal(err)
		}
		var r Result
		var err error
		if up {
			r, err = Up(patience(t), b.config(3), []string{here + "/big"}, "big")
		} else {
			r, err = Down(patience(t), b.config(3), []string{"big"}, here)
		}
		want := Result{Files: 1, Bytes: length - transfer.PieceLen, Kept: transfer.PieceLen}
		if err != nil || r != want {
			t.Errorf("%+v, %v, want %+v; %q", r, err, want, b.notes)
		}
		same(t, from, to)
	}
}

// TestCutOff: an interrupted copy leaves the old file and a partial one, which the next copy resumes.
func TestCutOff(t *testing.T) {
	for _, up := range []bool{true, false} {
		b := start(t, transfer.TreeConfig{})
		here := t.TempDir()
		from, to := here, b.dir
		if !up {
			from, to = to, from
		}
		content := make([]byte, 6*transfer.PieceLen)
		rand.NewChaCha8([32]byte{5}).Read(content)
		if err := errors.Join(os.WriteFile(from+"/big", content, 0o600),
			os.WriteFile(to+"/big", []byte("old"), 0o600)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(patience(t))
		cfg := b.config(2)
		cfg.Progress = func(done, _ int64) {
			if done > 2*transfer.PieceLen {
				cancel()
			}
		}
		work := func(ctx context.Context, cfg Config) (Result, error) {
			if up {
				return Up(ctx, cfg, []string{here + "/big"}, "big")
			}
			return Down(ctx, cfg, []string{"big"}, here)
		}
		if _, err := work(ctx, cfg); !errors.Is(err, context.Canceled) {
			t.Errorf("cut off: %v", err)
		}
		if old, err := os.ReadFile(to + "/big"); string(old) != "old" || err != nil {
			t.Errorf("the old file has %.20q, %v", old, err)
		}
		r, err := work(patience(t), b.config(2))
		for end := time.Now().Add(20 * time.Second); err != nil && time.Now().Before(end); {
			time.Sleep(5 * time.Millisecond) // until the server noticed that the first connections ended
			r, err = work(patience(t), b.config(2))
		}
		if err != nil || r.Kept < 2*transfer.PieceLen || r.Bytes+r.Kept != int64(len(content)) {
			t.Errorf("again: %+v, %v; %q", r, err, b.notes)
		}
		same(t, from, to)
	}
}

// TestFailures: each failure is reported, and the other files are copied.
func TestFailures(t *testing.T) {
	b := start(t, transfer.TreeConfig{Size: 1000})
	src := t.TempDir()
	for name, n := range map[string]int{"a": 10, "b": 5000, "c": 10} {
		if err := os.WriteFile(src+"/"+name, make([]byte, n), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink("a", src+"/link"), os.Mkdir(b.dir+"/c", 0o700)); err != nil {
		t.Fatal(err)
	}
	r, err := Up(patience(t), b.config(2), []string{src + "/a", src + "/b", src + "/c"}, ".")
	notes := strings.Join(b.notes, "\n")
	if !errors.Is(err, ErrFailed) || r.Files != 1 || r.Failed != 2 ||
		!strings.Contains(notes, "at most 1000") ||
		!strings.Contains(notes, "c is a directory at the destination") {
		t.Errorf("%+v, %v, %s", r, err, notes)
	}
	cfg := b.config(1)
	cfg.Recursive = false
	for _, tc := range []struct {
		from []string
		to   string
		want string
	}{
		{[]string{src}, ".", "use -r"},
		{[]string{src + "/a", src + "/b"}, "none", "none is not a directory"},
		{[]string{src + "/a"}, "../x", "path escapes from parent"},
		{[]string{"/dev/null"}, ".", "not a regular file"},
	} {
		if _, err := Up(patience(t), cfg, tc.from, tc.to); err == nil ||
			!strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v to %s: %v, want %q", tc.from, tc.to, err, tc.want)
		}
	}
	for _, tc := range []struct{ from, want string }{
		{".", "use -r"}, {"none", "no such file"}, {"../x", "path escapes from parent"},
	} {
		if _, err := Down(patience(t), cfg, []string{tc.from}, t.TempDir()); err == nil ||
			!strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.from, err, tc.want)
		}
	}
}

// The copy of a file that is truncated meanwhile fails. Afterwards the server still serves another file.
func TestCutShort(t *testing.T) {
	b := start(t, transfer.TreeConfig{})
	here := t.TempDir()
	if err := os.WriteFile(b.dir+"/small", []byte("small"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if err := os.WriteFile(b.dir+"/big", make([]byte, 8*transfer.PieceLen), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg := b.config(2)
		var once sync.Once
		cfg.Progress = func(int64, int64) { once.Do(func() { os.Truncate(b.dir+"/big", 4096) }) }
		if _, err := Down(patience(t), cfg, []string{"big"}, here); err == nil {
			t.Error("a file that was cut short is copied")
		}
		if _, err := os.Stat(here + "/big"); err == nil {
			t.Error("it is there")
		}
		os.Remove(here + "/small")
		r, err := Down(patience(t), b.config(1), []string{"small"}, here)
		if err != nil || r.Files != 1 {
			t.Errorf("another file: %+v, %v", r, err)
		}
	}
}

// TestLinkAtDestination: a copy to a dangling symbolic link fails, and the link is kept. The partial file is removed if
// it is short; a long one is kept, so that the next copy can resume it.
func TestLinkAtDestination(t *testing.T) {
	for _, length := range []int{10, 2 * transfer.PieceLen} {
		b := start(t, transfer.TreeConfig{})
		here := t.TempDir()
		if err := errors.Join(os.WriteFile(b.dir+"/file", make([]byte, length), 0o444),
			os.Symlink("nowhere", here+"/file")); err != nil {
			t.Fatal(err)
		}
		if r, err := Down(patience(t), b.config(2), []string{"file"}, here); err == nil {
			t.Errorf("%d bytes: %+v, and no error", length, r)
		}
		if to, err := os.Readlink(here + "/file"); to != "nowhere" {
			t.Errorf("%d bytes: the link leads to %q, %v", length, to, err)
		}
		st, err := os.Stat(here + "/.file.xwarp-partial")
		switch {
		case length < transfer.PieceLen && !errors.Is(err, fs.ErrNotExist):
			t.Errorf("%d bytes: %v, %v", length, st, err)
		case length >= transfer.PieceLen && (err != nil || st.Mode() != partialMode):
			t.Errorf("%d bytes: %v, %v", length, st, err)
		}
	}
}
