package hostfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// somebody is the ID of another user.
const somebody = 65534

// give gives a file to somebody, which only root can do.
func give(t *testing.T, name string) {
	t.Helper()
	if err := os.Lchown(name, somebody, somebody); err != nil {
		t.Fatalf("these tests need root: %v", err)
	}
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func TestDir(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b")
	if _, err := OpenDir(path, false); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing directory: %v", err)
	}
	d, err := OpenDir(path, true)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	if _, err := d.Read("x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	for _, text := range []string{"one", "two, longer"} {
		must(t, d.Write("x", []byte(text)))
		if b, err := d.Read("x"); string(b) != text || err != nil {
			t.Errorf("%q, %v", b, err)
		}
	}
	if st, err := os.Stat(filepath.Join(path, "x")); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	must(t, d.Remove("x"))
	if e, _ := os.ReadDir(path); len(e) != 0 {
		t.Errorf("left behind: %v", e)
	}
}

// TestDirOfOthers: OpenDir or Read fails if another user could have changed the file, and for links, directories and
// huge files.
func TestDirOfOthers(t *testing.T) {
	for _, tc := range []struct {
		name string
		make func(top string) error // top has dir, which has file
		want string                 // "" if valid
	}{
		{"as it should be", func(string) error { return nil }, ""},
		{"directory of another user", func(top string) error {
			give(t, top+"/dir")
			return nil
		}, "owned by user 65534"},
		{"directory above of another user", func(top string) error {
			give(t, top)
			return nil
		}, "owned by user 65534"},
		{"others may write", func(top string) error {
			return os.Chmod(top+"/dir", 0o777)
		}, "writable by others"},
		{"others may write above", func(top string) error {
			return os.Chmod(top, 0o777)
		}, "writable by others"},
		{"as in /tmp above", func(top string) error {
			return os.Chmod(top, 0o777|fs.ModeSticky)
		}, ""},
		{"as in /tmp", func(top string) error {
			return os.Chmod(top+"/dir", 0o777|fs.ModeSticky)
		}, "writable by others"},
		{"directory is a link", func(top string) error {
			return errors.Join(os.Rename(top+"/dir", top+"/real"), os.Symlink(top+"/real", top+
				"/dir"))
		}, "symbolic links are not followed"},
		{"file of another user", func(top string) error {
			give(t, top+"/dir/file")
			return nil
		}, "owned by user 65534"},
		{"others may write to the file", func(top string) error {
			return os.Chmod(top+"/dir/file", 0o602)
		}, "writable by others"},
		{"file is a link", func(top string) error {
			return errors.Join(os.Rename(top+"/dir/file", top+"/dir/real"), os.Symlink("real", top+
				"/dir/file"))
		}, "too many levels of symbolic links"},
		{"file is a directory", func(top string) error {
			return errors.Join(os.Remove(top+"/dir/file"), os.Mkdir(top+"/dir/file", 0o700))
		}, "not a regular file"},
		{"file is huge", func(top string) error {
			return os.Truncate(top+"/dir/file", maxFile+1)
		}, "not a regular file of at most"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			top := t.TempDir()
			must(t, os.Mkdir(top+"/dir", 0o700), os.WriteFile(top+"/dir/file", []byte("x"), 0o600),
				tc.make(top))
			d, err := OpenDir(top+"/dir", true)
			if err == nil {
				defer d.Close()
				_, err = d.Read("file")
			}
			if (tc.want == "") != (err == nil) || err != nil &&
				!strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}

// Symbolic links at the file's name and at the name of Write's temporary file are replaced. Their target keeps its
// content.
func TestWriteFollowsNoLink(t *testing.T) {
	top := t.TempDir()
	must(t, os.WriteFile(top+"/victim", []byte("secret"), 0o600), os.Symlink(top+"/victim", top+
		"/file.new"), os.Symlink(top+"/victim", top+"/file"))
	d, err := OpenDir(top, false)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	must(t, d.Write("file", []byte("mine")))
	victim, _ := os.ReadFile(top + "/victim")
	mine, err := d.Read("file")
	if string(victim) != "secret" || string(mine) != "mine" || err != nil {
		t.Errorf("%q, %q, %v", victim, mine, err)
	}
}

func TestCreate(t *testing.T) {
	top := t.TempDir()
	name := func(n string) string { return filepath.Join(top, n) }
	must(t, os.WriteFile(name("own"), []byte("old and long"), 0o600), os.WriteFile(name("planted"),
		[]byte("theirs"), 0o666),
		os.Symlink("own", name("link")), os.Symlink("own", name("trap")))
	give(t, name("planted"))
	give(t, name("trap"))
	for _, n := range []string{"new", "own", "link"} {
		f, err := Create(name(n))
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteString(n)
		must(t, err, f.Close())
		if b, err := os.ReadFile(name(n)); string(b) != n || err != nil {
			t.Errorf("%s: %q, %v", n, b, err)
		}
	}
	for n, want := range map[string]string{"planted": "owned by user 65534",
		"trap": "is a symbolic link, and owned by user 65534"} {
		if _, err := Create(name(n)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", n, err, want)
		}
	}
	if b, _ := os.ReadFile(name("planted")); string(b) != "theirs" {
		t.Errorf("the planted file has %q", b)
	}
	if b, _ := os.ReadFile(name("own")); string(b) != "link" {
		t.Errorf("the target of the link has %q", b)
	}
	if f, err := Create("/dev/null"); err != nil {
		t.Error(err)
	} else {
		f.Close()
	}
}
