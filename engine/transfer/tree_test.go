package transfer

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"xwarp/engine/host/staging"
)

// tree opens the directory cfg.Path. If that is empty, it creates a directory with a file sub/file, and a secret beside
// it.
func tree(t *testing.T, cfg TreeConfig) *Tree {
	t.Helper()
	if cfg.Path == "" {
		cfg.Path = filepath.Join(t.TempDir(), "dir")
		if err := errors.Join(os.Mkdir(cfg.Path, 0o755), os.Mkdir(cfg.Path+"/sub", 0o755),
			os.WriteFile(cfg.Path+"/sub/file", []byte("inside"), 0o644),
			os.WriteFile(cfg.Path+".secret", []byte("secret"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	tr, err := OpenTree(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Close() })
	return tr
}

// write stores a file as a client.
func (t *Tree) write(name, content string) error {
	c := &copying{}
	p, err := t.store(c, &Message{Path: name, Session: 1, Attr: Attr{
		Kind: KindFile, Mode: 0o4755, Length: uint64(len(content)), Modified: Time{Seconds: 1e9},
	}})
	if err != nil {
		return err
	}
	_, err = p.file.WriteString(content)
	if err := errors.Join(err, p.commit()); err != nil {
		return errors.Join(err, p.leave(c))
	}
	return nil
}

// text returns the file's bytes.
func (r *reading) text() string {
	b, err := io.ReadAll(r.file)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// beginning returns the first n bytes of the staging file.
func (p *part) beginning(n int) string {
	b := make([]byte, n)
	if _, err := p.file.ReadAt(b, 0); err != nil {
		return err.Error()
	}
	return string(b)
}

// packed returns a pack with one file, or nil if the file is refused.
func (t *Tree) packed(name string) []byte {
	dirs := staging.Dirs{}
	defer dirs.Close()
	b, _ := t.appendFile(make([]byte, 0, BufferLen), dirs, name)
	return b
}

// For any file name of a client, and any symbolic links, nothing outside the directory is read, written or created.
func TestNothingOutsideIsReached(t *testing.T) {
	tr := tree(t, TreeConfig{})
	dir := tr.Path()
	secret := dir + ".secret"
	if err := errors.Join(os.Symlink(secret, dir+"/link"), os.Symlink("..", dir+"/up"),
		os.Symlink("/", dir+"/root"), os.Symlink("../../dir.secret", dir+"/sub/link"),
		os.Symlink("sub", dir+"/within"), os.Symlink("/proc/self/fd", dir+"/magic")); err != nil {
		t.Fatal(err)
	}
	outside := []string{
		"../dir.secret", "sub/../../dir.secret", "/etc/passwd", secret, "link", "sub/link",
		"up/dir.secret", "root/etc/passwd", "root" + secret, "magic/0", "..", "up", "sub/../..",
	}
	for _, name := range outside {
		if r, err := tr.read(name); err == nil {
			t.Errorf("%s is read: %q", name, r.text())
		}
		if b := tr.packed(name); b != nil {
			t.Errorf("%s is in a pack: %q", name, b)
		}
		if list, err := tr.list(name); err == nil {
			t.Errorf("%s is listed: %q", name, list)
		}
		if a, err := tr.stat(name); err == nil {
			t.Errorf("%s is there: %+v", name, a)
		}
		if err := tr.mkdir(name+"/made", 0o755); err == nil {
			t.Errorf("%s/made is made", name)
		}
		if err := tr.write(name+"/made", "x"); err == nil {
			t.Errorf("%s/made is written", name)
		}
		if err := tr.write(name, "x"); err == nil && name != "link" && name != "sub/link" &&
			name != "up" {
			t.Errorf("%s is written", name)
		}
	}
	// A link in place of a file is replaced, and its target stays.
	if b, err := os.ReadFile(secret); string(b) != "secret" || err != nil {
		t.Errorf("the secret is %q, %v", b, err)
	}
	if list, err := os.ReadDir(filepath.Dir(dir)); len(list) != 2 || err != nil {
		t.Errorf("beside the directory: %v, %v", list, err)
	}
	if r, err := tr.read("within/file"); err != nil || r.text() != "inside" {
		t.Errorf("a link that stays inside: %v", err)
	}
	if b := tr.packed("within/file"); !strings.HasSuffix(string(b), "inside") {
		t.Errorf("a link that stays inside, in a pack: %q", b)
	}
	if _, err := tr.read("../dir.secret"); !escapes(err) {
		t.Errorf("the error is %v", err)
	}
}

// escapes reports whether os.Root refused a path, for which it exports no error.
func escapes(err error) bool {
	return err != nil && strings.Contains(err.Error(), "path escapes from parent")
}

// While another process swaps a directory for a link that leads outside, no path leads there.
func TestSwappedDirectories(t *testing.T) {
	tr := tree(t, TreeConfig{})
	dir := tr.Path()
	if err := errors.Join(os.Mkdir(dir+".out", 0o755), os.WriteFile(dir+".out/file",
		[]byte("outside"), 0o644), os.Symlink("../dir.out", dir+"/link")); err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan bool), make(chan bool)
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				unix.Renameat2(unix.AT_FDCWD, dir+"/sub", unix.AT_FDCWD, dir+"/link",
					unix.RENAME_EXCHANGE)
			}
		}
	}()
	for range 2000 {
		if r, err := tr.read("sub/file"); err == nil {
			if r.text() != "inside" {
				t.Errorf("read %q", r.text())
			}
			r.leave()
		}
		if err := tr.write("sub/new", "x"); err != nil && !escapes(err) &&
			!errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) &&
			!errors.Is(err, unix.ELOOP) {
			t.Fatal(err)
		}
	}
	close(stop)
	<-stopped
	if list, err := os.ReadDir(dir + ".out"); len(list) != 1 || err != nil {
		t.Errorf("outside there is %v, %v", list, err)
	}
}

// Names that are no file names, the names of directories and pipes, and changes of a read-only directory are refused.
func TestRefusedFiles(t *testing.T) {
	tr := tree(t, TreeConfig{})
	if err := unix.Mkfifo(tr.Path()+"/pipe", 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".", "sub/..", "sub/", "sub", ".x.xwarp-partial",
		strings.Repeat("x", staging.MaxName+1), "none/file", "pipe"} {
		if err := tr.write(name, "x"); err == nil {
			t.Errorf("%.40s is written", name)
		}
	}
	if _, err := tr.read("pipe"); err == nil ||
		!strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a pipe: %v", err)
	}
	if err := tr.write(strings.Repeat("x", staging.MaxName), "x"); err != nil {
		t.Errorf("the longest name: %v", err)
	}
	only := tree(t, TreeConfig{Path: tr.Path(), ReadOnly: true})
	if err := errors.Join(only.write("new", "x")); err == nil ||
		!strings.Contains(err.Error(), "read-only") {
		t.Errorf("writing to a read-only directory: %v", err)
	}
	if err := only.mkdir("new", 0o755); err == nil {
		t.Error("a directory is created in a read-only directory")
	}
}

// A file keeps its permissions and its time, but not its set-user-ID bit.
func TestAttributesAreKept(t *testing.T) {
	tr := tree(t, TreeConfig{})
	if err := tr.write("sub/file", "new"); err != nil {
		t.Fatal(err)
	}
	a, err := tr.stat("sub/file")
	want := Attr{Kind: KindFile, Mode: 0o755, Length: 3, Modified: Time{Seconds: 1e9}}
	if d := cmp.Diff(want, a); d != "" || err != nil {
		t.Errorf("%v, %s", err, d)
	}
	st, err := os.Stat(tr.Path() + "/sub/file")
	if err != nil || st.Mode() != 0o755 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
}

// The bytes and files of clients are counted exactly, including staging files, also after a restart. What exceeds the
// limits is refused.
func TestTreeLimits(t *testing.T) {
	tr := tree(t, TreeConfig{Size: 100, Files: 4}) // there are 6 bytes, a file and a directory
	used := func(byteCount, files int64) {
		t.Helper()
		if o, f := tr.Used(); o != byteCount || f != files {
			t.Errorf("%d bytes in %d files, want %d in %d", o, f, byteCount, files)
		}
	}
	tooMuch := func(err error) {
		t.Helper()
		var r *refusal
		if !errors.As(err, &r) || r.code != CodeTooLarge {
			t.Errorf("%v, want a refusal", err)
		}
	}
	used(6, 2)
	tooMuch(tr.write("big", strings.Repeat("x", 95)))
	used(6, 2)
	if err := tr.write("big", strings.Repeat("x", 94)); err != nil {
		t.Fatal(err)
	}
	used(100, 3)
	tooMuch(tr.write("one", "x"))
	if err := tr.write("none", ""); err != nil {
		t.Fatal(err)
	}
	tooMuch(tr.write("another", ""))
	tooMuch(tr.mkdir("another", 0o755))
	used(100, 4)
	if err := tr.mkdir("sub", 0o755); err != nil {
		t.Errorf("a directory that is there: %v", err)
	}
	tr.cfg.Size = 1000
	if err := tr.write("big", "small"); err == nil {
		t.Error("a staged file beyond the limit")
	}
	tr.cfg.Files = 5
	if err := tr.write("big", "small"); err != nil {
		t.Error(err)
	}
	used(11, 4)
	tr = tree(t, TreeConfig{Path: tr.Path()})
	used(11, 4)
}

// TestRemovedFilesMakeRoom: what users of the host remove no longer counts for a full directory, except soon after the
// last count and while a client stores a file.
func TestRemovedFilesMakeRoom(t *testing.T) {
	tr := tree(t, TreeConfig{Size: 100, Files: 4})
	if err := tr.write("big", strings.Repeat("x", 94)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(tr.Path(), "big")); err != nil {
		t.Fatal(err)
	}
	if err := tr.write("next", "12345"); err == nil {
		t.Error("counted again at once")
	}
	tr.counted = tr.counted.Add(-recountAfter)
	c := &copying{}
	p, err := tr.store(c, &Message{Path: "empty", Session: 1,
		Attr: Attr{Kind: KindFile, Mode: 0o644}})
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.write("next", "12345"); err == nil {
		t.Error("counted while a file was written")
	}
	if err := errors.Join(p.commit(), tr.write("next", "12345")); err != nil {
		t.Error(err)
	}
	if o, f := tr.Used(); o != 11 || f != 4 {
		t.Errorf("%d bytes in %d files", o, f)
	}
	if err := os.Remove(filepath.Join(tr.Path(), "empty")); err != nil {
		t.Fatal(err)
	}
	tr.counted = tr.counted.Add(-recountAfter)
	if err := tr.mkdir("dir", 0o755); err != nil {
		t.Error(err)
	}
}

// A partial file is resumed by one client at a time. Opening the directory removes those that have not been resumed for
// partialAge.
func TestPartialFiles(t *testing.T) {
	tr := tree(t, TreeConfig{})
	m := Message{Path: "big", Session: 1, Attr: Attr{Kind: KindFile, Mode: 0o644, Length: smallest}}
	c, other := &copying{}, &copying{}
	p, err := tr.store(c, &m)
	if err != nil || p.resumed {
		t.Fatal(p, err)
	}
	if _, err := p.file.WriteString("begun"); err != nil {
		t.Fatal(err)
	}
	same, err := tr.store(other, &m)
	if same != p || err != nil {
		t.Errorf("another connection of the session: %v", err)
	}
	m.Session = 2
	if _, err := tr.store(c, &m); err == nil || !strings.Contains(err.Error(), "another client") {
		t.Errorf("another client: %v", err)
	}
	if err := p.commit(); err == nil {
		t.Error("a commit while another connection writes")
	}
	if err := errors.Join(p.leave(c), p.leave(other)); err != nil {
		t.Fatal(err)
	}
	if list, err := tr.list("."); err != nil || strings.Contains(string(list), "big") {
		t.Errorf("the listing has the partial file: %q, %v", list, err)
	}
	if p, err = tr.store(c, &m); err != nil || !p.resumed || p.beginning(5) != "begun" {
		t.Fatal(err)
	}
	if err := p.leave(c); err != nil {
		t.Fatal(err)
	}
	name := tr.Path() + "/.big.xwarp-partial"
	for _, age := range []time.Duration{time.Hour, partialAge + time.Hour} {
		when := time.Now().Add(-age)
		if err := os.Chtimes(name, when, when); err != nil {
			t.Fatal(err)
		}
		tree(t, TreeConfig{Path: tr.Path()})
		if _, err := os.Stat(name); (err == nil) != (age < partialAge) {
			t.Errorf("after %v: %v", age, err)
		}
	}
}

// When a directory is opened, a staged file that a process has open stays, and one that no process has open is removed.
func TestOthersStage(t *testing.T) {
	tr := tree(t, TreeConfig{})
	dir, err := staging.OpenDir(tr.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	st, err := dir.Create("region", 0o600)
	if err != nil {
		t.Fatal(err)
	}
	tree(t, TreeConfig{Path: tr.Path()})
	if err := st.Commit(); err != nil {
		t.Error(err)
	}
	left := tr.Path() + "/.region.0123456789abcdef.xwarp-staged"
	if err := os.WriteFile(left, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	tree(t, TreeConfig{Path: tr.Path()})
	if _, err := os.Stat(left); err == nil {
		t.Error("a file exists that no client has staged")
	}
}

// TestListing: a listing is decoded into the list that was encoded. One that is cut off, or has a name that could lead
// a client outside its directory, is refused.
func TestListing(t *testing.T) {
	list := []Entry{
		{"a", Attr{Kind: KindFile, Length: 7}}, {strings.Repeat("é", 100), Attr{Kind: KindDir}},
	}
	var b []byte
	for i := range list {
		b = appendEntry(b, &list[i])
	}
	got, err := parseListing(b)
	if d := cmp.Diff(list, got); d != "" || err != nil {
		t.Errorf("%v, %s", err, d)
	}
	for _, bad := range []string{"", ".", "..", "a/b", "/", "a\x00"} {
		if got, err := parseListing(appendEntry(nil, &Entry{Name: bad})); err == nil {
			t.Errorf("%q is taken: %v", bad, got)
		}
	}
	for n := 1; n < len(b); n++ {
		if _, err := parseListing(b[:n]); err == nil && n != entryLen+1 {
			t.Errorf("accepted when cut to %d bytes", n)
		}
	}
}

// A file that its client stores without any permissions can be resumed and removed if it could not get its final name,
// even by a server that is not root.
func TestPartialWithoutRights(t *testing.T) {
	done := make(chan bool)
	go func() { // on a thread that ends with it
		defer close(done)
		runtime.LockOSThread()
		if err := noOverride(); err != nil {
			t.Error(err)
			return
		}
		tr := tree(t, TreeConfig{})
		m := Message{Path: "x", Session: 1, Attr: Attr{Kind: KindFile, Length: smallest}}
		c := &copying{}
		p, err := tr.store(c, &m)
		if err != nil {
			t.Error(err)
			return
		}
		if err := os.Mkdir(tr.Path()+"/x", 0o700); err != nil {
			t.Error(err)
		}
		if err := p.commit(); err == nil {
			t.Error("the directory was replaced")
		}
		if err := errors.Join(p.leave(c), os.Remove(tr.Path()+"/x")); err != nil {
			t.Error(err)
		}
		if p, err = tr.store(c, &m); err != nil || !p.resumed {
			t.Errorf("it cannot be resumed: %v", err)
			return
		}
		left := tr.Path() + "/.x.xwarp-partial"
		long := time.Now().Add(-2 * partialAge)
		err = errors.Join(p.leave(c), os.Chmod(left, 0), os.Chtimes(left, long, long))
		if err != nil {
			t.Error(err)
		}
		again := tree(t, TreeConfig{Path: tr.Path()})
		if again.files != tr.files-1 || again.used != tr.used-smallest {
			t.Errorf("%d bytes of %d files are left", again.used, again.files)
		}
		if p, err = tr.store(c, &m); err != nil {
			t.Error(err)
			return
		}
		if err := p.commit(); err != nil {
			t.Error(err)
		}
		if a, err := tr.stat("x"); err != nil || a.Mode != 0 || a.Length != smallest {
			t.Errorf("%+v, %v", a, err)
		}
	}()
	<-done
}

// noOverride drops the capabilities with which root can open any file, for this thread.
func noOverride() error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&head, &caps[0]); err != nil {
		return err
	}
	caps[0].Effective &^= 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH
	return unix.Capset(&head, &caps[0])
}
