package transfer

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"xwarp/engine/host/staging"
)

// put makes content that of the region, as a client's put does.
func (r *Region) put(t *testing.T, content string) error {
	t.Helper()
	who, n := owner(netip.IPv6Loopback()), int64(len(content))
	if err := r.reserve(t.Context(), who, n); err != nil {
		t.Fatal(err)
	}
	st, err := r.stage(who, n, n)
	if err != nil {
		r.unreserve(who, n)
		return err
	}
	copy(st.mem, content)
	return r.commit(st, n, sha256.Sum256([]byte(content)))
}

// text returns the content as a get returns it, with the SHA-256 that the region has cached.
func (r *Region) text(t *testing.T) (string, Sum) {
	t.Helper()
	c, err := r.hold()
	if err != nil {
		t.Fatal(err)
	}
	defer r.releaseMemory(c)
	sum := Sum{}
	if d := c.digests[c.length]; d != nil {
		sum = d.sum
	}
	return string(c.mem[:c.length]), sum
}

// want checks the content, in the region and in the file, and that nothing is staged.
func (r *Region) want(t *testing.T, path, content string) {
	t.Helper()
	if got, sum := r.text(t); got != content || sum != sha256.Sum256([]byte(content)) {
		t.Errorf("the region has %q with SHA-256 %x, want %q", got, sum, content)
	}
	if b, err := os.ReadFile(path); string(b) != content || err != nil {
		t.Errorf("the file has %q, %v, want %q", b, err, content)
	}
	if list := around(t, path); len(list) != 0 {
		t.Errorf("left behind: %q", list)
	}
	if r.room.used != 0 || len(r.past) != 0 {
		t.Errorf("%d bytes of room in use, %d older contents", r.room.used, len(r.past))
	}
}

// around returns the other entries in the directory of a file.
func around(t *testing.T, path string) (names []string) {
	t.Helper()
	list, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if staging.Leftover(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names
}

func openFile(t *testing.T, cfg FileConfig) *Region {
	t.Helper()
	r, err := OpenRegion(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// A put gives a file new content, with its length and SHA-256. All must be there after a restart, whether the file may
// be replaced or not.
func TestPutIsDurable(t *testing.T) {
	for _, tc := range []struct {
		name  string
		cfg   FileConfig
		make  func(path string) error
		stays bool // it is the same file
	}{
		{"a new file", FileConfig{}, func(string) error { return nil }, false},
		{"an old file", FileConfig{}, func(path string) error {
			return os.WriteFile(path, []byte("old"), 0o640)
		}, false},
		{"in place", FileConfig{InPlace: true}, func(path string) error {
			return os.WriteFile(path, []byte("old"), 0o640)
		}, true},
		{"a file with two names", FileConfig{}, func(path string) error {
			return errors.Join(os.WriteFile(path, []byte("old"), 0o640),
				os.Link(path, path+".other"))
		}, true},
		{"a symbolic link", FileConfig{}, func(path string) error {
			return errors.Join(os.WriteFile(path+".real", []byte("old"), 0o640),
				os.Symlink("region.real", path))
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "region")
			if err := tc.make(path); err != nil {
				t.Fatal(err)
			}
			tc.cfg.Path, tc.cfg.Size = path, 1<<20
			r := openFile(t, tc.cfg)
			was, err := os.Open(path) // so that its inode is not reused
			if err != nil {
				t.Fatal(err)
			}
			defer was.Close()
			before, err := was.Stat()
			if err != nil {
				t.Fatal(err)
			}
			for _, content := range []string{"one", strings.Repeat("long", 5000), "", "x"} {
				if err := r.put(t, content); err != nil {
					t.Fatal(err)
				}
				r.want(t, path, content)
				if err := r.Close(); err != nil { // the process ends
					t.Fatal(err)
				}
				r = openFile(t, tc.cfg)
				r.want(t, path, content)
			}
			after, err := os.Stat(path)
			if err != nil || after.Mode() != before.Mode() ||
				os.SameFile(before, after) != tc.stays {
				t.Errorf("%v with mode %v became %v with mode %v, %v", before, before.Mode(), after,
					after.Mode(), err)
			}
		})
	}
}

// Data that another process wrote to the file does not count as put.
func TestChangedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "region")
	r := openFile(t, FileConfig{Path: path, Size: 1 << 20})
	if err := errors.Join(r.put(t, "content"), r.Close(),
		os.WriteFile(path, []byte("somebody's"), 0o600)); err != nil {
		t.Fatal(err)
	}
	r = openFile(t, FileConfig{Path: path, Size: 1 << 20})
	if got, sum := r.text(t); got != "somebody's" || sum != (Sum{}) {
		t.Errorf("%q with SHA-256 %x, want none cached", got, sum)
	}
}

// A get in progress reads the content of its start to the end. Only if the file itself is overwritten are its gets told
// to restart.
func TestPutWhileRead(t *testing.T) {
	for _, inPlace := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "region")
		if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
		r := openFile(t, FileConfig{Path: path, Size: 1 << 20, InPlace: inPlace})
		c, err := r.hold()
		if err != nil {
			t.Fatal(err)
		}
		put := make(chan error, 1)
		go func() { put <- r.put(t, "new") }()
		if inPlace {
			<-c.revoked.Done()
			if got, _ := r.text(t); got != "new" {
				t.Errorf("others see %q", got)
			}
		} else if err := <-put; err != nil {
			t.Error(err)
		}
		if got := string(c.mem[:c.length]); got != "old" || c.revoked.Err() == nil == inPlace {
			t.Errorf("in place %v: a get in progress reads %q, restarted %v", inPlace, got,
				c.revoked.Err())
		}
		if err := r.releaseMemory(c); err != nil {
			t.Error(err)
		}
		if inPlace {
			if err := <-put; err != nil {
				t.Error(err)
			}
		}
		r.want(t, path, "new")
	}
}

// If a put fails for any reason, it reports the reason, and the content stays.
func TestPutFails(t *testing.T) {
	for _, tc := range []struct {
		name string
		way  func(t *testing.T, dir, path string) // puts it there
		want error
	}{
		{"directory removed", func(t *testing.T, dir, path string) {
			os.Rename(path, dir+".file")
			os.Remove(dir)
		}, fs.ErrNotExist},
		{"file is a link now", func(t *testing.T, dir, path string) {
			os.WriteFile(dir+".victim", []byte("victim"), 0o600)
			os.Remove(path)
			os.Symlink(dir+".victim", path)
		}, staging.ErrReplaced},
		{"another file", func(t *testing.T, dir, path string) {
			os.Remove(path)
			os.WriteFile(path, []byte("another"), 0o600)
		}, staging.ErrReplaced},
		{"file is a directory now", func(t *testing.T, dir, path string) {
			os.Remove(path)
			os.Mkdir(path, 0o700)
		}, staging.ErrReplaced},
		{"no permission", func(t *testing.T, dir, path string) {
			d, err := os.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			const immutable = 0x10 // chattr +i
			err = unix.IoctlSetPointerInt(int(d.Fd()), unix.FS_IOC_SETFLAGS, immutable)
			if err != nil {
				t.Fatal(err)
			}
		}, fs.ErrPermission},
		{"disk full", func(t *testing.T, dir, path string) {
			os.WriteFile(dir+"/other", make([]byte, 2<<20), 0o600)
		}, unix.ENOSPC},
	} {
		for _, inPlace := range []bool{false, true} {
			t.Run(tc.name, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "dir")
				path := filepath.Join(dir, "region")
				if err := os.Mkdir(dir, 0o700); err != nil {
					t.Fatal(err)
				}
				if tc.want == fs.ErrPermission || tc.want == unix.ENOSPC {
					mountSmall(t, dir)
				}
				r := openFile(t, FileConfig{Path: path, Size: 1 << 20, InPlace: inPlace})
				if err := r.put(t, "content"); err != nil {
					t.Fatal(err)
				}
				tc.way(t, dir, path)
				if err := r.put(t, strings.Repeat("x", 1<<20)); !errors.Is(err, tc.want) {
					t.Errorf("put: %v, want %v", err, tc.want)
				}
				if got, _ := r.text(t); got != "content" || r.Err() != nil {
					t.Errorf("the content is %.20q, %v", got, r.Err())
				}
				if b, err := os.ReadFile(dir + ".victim"); err == nil && string(b) != "victim" {
					t.Errorf("the target of the link has %q", b)
				}
				if _, err := os.Stat(dir); err == nil && len(around(t, path)) != 0 {
					t.Errorf("left behind: %q", around(t, path))
				}
			})
		}
	}
}

// A file that cannot be replaced is not served: the start returns the reason.
func TestNoPlaceToStage(t *testing.T) {
	dir := t.TempDir()
	mountSmall(t, dir)
	path := filepath.Join(dir, "region")
	if err := errors.Join(os.WriteFile(path, []byte("old"), 0o600),
		unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, "")); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenRegion(FileConfig{Path: path}); !errors.Is(err, unix.EROFS) {
		t.Errorf("on a read-only file system: %v", err)
	}
	if _, err := OpenRegion(FileConfig{Path: dir}); !errors.Is(err, unix.EISDIR) {
		t.Errorf("a directory: %v", err)
	}
	_, err := OpenRegion(FileConfig{Path: dir + "/none/region"})
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in a missing directory: %v", err)
	}
}

// mountSmall gives dir its own file system of 2 MiB.
func mountSmall(t *testing.T, dir string) {
	t.Helper()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Fatalf("mounting a small file system (the tests need root): %v", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
}

// The next start completes a journal whose process died before the file had all of it.
func TestJournalIsApplied(t *testing.T) {
	path := filepath.Join(t.TempDir(), "region")
	r := openFile(t, FileConfig{Path: path, Size: 1 << 20, InPlace: true})
	if err := r.put(t, "the old content"); err != nil {
		t.Fatal(err)
	}
	st, err := r.disk.create(3)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.WriteString("new"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(staging.Note(st.File, sha256.Sum256([]byte("new"))),
		st.Journal(r.disk.file), os.WriteFile(path, []byte("ne"), 0), st.Close(),
		r.Close()); err != nil {
		t.Fatal(err)
	}
	if left := around(t, path); !slices.Equal(left, []string{".region.xwarp-journal"}) {
		t.Fatalf("beside the file: %q", left)
	}
	var log bytes.Buffer
	to := slog.New(slog.NewTextHandler(&log, nil))
	r = openFile(t, FileConfig{Path: path, Size: 1 << 20, Log: to})
	r.want(t, path, "new")
	if !strings.Contains(log.String(), "completed an interrupted put from its journal") {
		t.Errorf("the log has %q", &log)
	}
}

// Staging files of a dead process are removed, and nothing else.
func TestLeftoversAreRemoved(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "region")
	others := []string{
		".region.0123456789abcdef.xwarp-stage", ".region.0123456789abcde.xwarp-staged",
		".other.0123456789abcdef.xwarp-staged",
		"region.0123456789abcdef.xwarp-staged", ".region.x.0123456789abcdef.xwarp-staged",
	}
	for _, name := range append(slices.Clone(others), ".region.0123456789abcdef.xwarp-staged") {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	openFile(t, FileConfig{Path: path, Size: 1})
	list, err := os.ReadDir(dir)
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	want := append(slices.Clone(others), "region")
	slices.Sort(want)
	slices.Sort(names)
	if err != nil || !slices.Equal(names, want) {
		t.Errorf("left %q, want %q, %v", names, want, err)
	}
}

// In a directory where others may write, a journal of theirs does not become the content.
func TestJournalOfOthers(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "region")
	planted := filepath.Join(dir, ".region.xwarp-journal")
	if err := errors.Join(os.WriteFile(path, []byte("mine"), 0o600),
		os.WriteFile(planted, []byte("theirs"), 0o666),
		os.Lchown(planted, 65534, 65534)); err != nil {
		t.Fatalf("the tests need root: %v", err)
	}
	if _, err := OpenRegion(FileConfig{Path: path}); err == nil ||
		!strings.Contains(err.Error(), "not created by this user (user 65534") {
		t.Errorf("a journal of another user: %v", err)
	}
	if b, err := os.ReadFile(path); !bytes.Equal(b, []byte("mine")) {
		t.Errorf("the file has %q, %v", b, err)
	}
}
