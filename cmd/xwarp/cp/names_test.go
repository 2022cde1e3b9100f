package cp

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/engine/transfer"
)

// oneFile creates a file with its own name as content, and returns its path.
func oneFile(t *testing.T, dir, name string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
		os.WriteFile(path, []byte(name), 0o644)); err != nil {
		t.Fatal(err)
	}
	return path
}

// A slash at the end of a path means a directory: as the destination it is created, or is an error if it is a file; a
// source must be one.
func TestSlashMeansDirectory(t *testing.T) {
	b := start(t, transfer.TreeConfig{})
	one := oneFile(t, t.TempDir(), "one")
	there := oneFile(t, b.dir, "there")
	here := t.TempDir()
	for _, dst := range []string{"backup/", "other/.", "/third//"} {
		if _, err := Up(patience(t), b.config(1), []string{one}, dst); err != nil {
			t.Errorf("%s: %v", dst, err)
		}
		if got, err := os.ReadFile(filepath.Join(b.dir, dst, "one")); string(got) != "one" {
			t.Errorf("%s: %q, %v", dst, got, err)
		}
	}
	if _, err := Down(patience(t), b.config(1), []string{"there"}, here+"/new/"); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(here + "/new/there"); string(got) != "there" {
		t.Errorf("here: %q, %v", got, err)
	}
	cfg := b.config(1)
	cfg.Stdin = strings.NewReader("stream")
	for _, tc := range []struct {
		run func() (Result, error)
		is  string
	}{
		{func() (Result, error) { return Up(patience(t), cfg, []string{one}, "there/") },
			"there is not a directory on the server"},
		{func() (Result, error) { return Up(patience(t), cfg, []string{one + "/"}, ".") },
			"not a directory"},
		{func() (Result, error) { return Up(patience(t), cfg, []string{Stream}, "none/") },
			"none is a directory on the server: name a file in it"},
		{func() (Result, error) { return Down(patience(t), cfg, []string{"there/"}, here) },
			"there is not a directory on the server"},
		{func() (Result, error) { return Down(patience(t), cfg, []string{"there"}, one+"/") },
			"not a directory"},
	} {
		if _, err := tc.run(); err == nil || !strings.Contains(err.Error(), tc.is) {
			t.Errorf("%v, want %q", err, tc.is)
		}
	}
	if got, err := os.ReadFile(there); string(got) != "there" {
		t.Errorf("the file is %q, %v", got, err)
	}
}

// Of two sources with one destination the second is not copied, and the run fails, as GNU cp does. The result does not
// depend on which copy is faster.
func TestSecondSourceOfOneNameIsRefused(t *testing.T) {
	b := start(t, transfer.TreeConfig{})
	dir := t.TempDir()
	a, same := oneFile(t, dir, "a/f"), oneFile(t, dir, "b/f")
	if err := os.Truncate(a, 5_000_000); err != nil { // takes longer than the second
		t.Fatal(err)
	}
	check := func(r Result, err error, got string) {
		t.Helper()
		st, statErr := os.Stat(got)
		if !errors.Is(err, ErrFailed) || r.Files != 1 || r.Failed != 1 || len(b.notes) != 1 ||
			!strings.Contains(b.notes[0], "will not overwrite just-created") ||
			statErr != nil || st.Size() != 5_000_000 {
			t.Errorf("%+v, %v, %q, %v", r, err, b.notes, st)
		}
	}
	r, err := Up(patience(t), b.config(4), []string{a, same}, ".")
	check(r, err, b.dir+"/f")
	for _, src := range []string{"a", "b"} { // also for directories
		if _, err := Up(patience(t), b.config(1), []string{dir + "/" + src}, "."); err != nil {
			t.Fatal(err)
		}
	}
	here := t.TempDir()
	r, err = Down(patience(t), b.config(4), []string{"a/f", "b/f"}, here)
	check(r, err, here+"/f")
	r, err = Up(patience(t), b.config(1), []string{a, a}, "c/")
	if err != nil || r.Files != 1 || len(b.notes) != 1 {
		t.Errorf("one source twice: %+v, %v, %q", r, err, b.notes)
	}
}

// Times before 1970 and after 2262 are copied exactly: those of files in packs, of larger files and of directories. A
// second copy finds the files unchanged.
func TestTimesBeyondNanoseconds(t *testing.T) {
	src := t.TempDir() + "/src"
	small, large := oneFile(t, src, "d/small"), oneFile(t, src, "d/large")
	if err := os.Truncate(large, 200_000); err != nil {
		t.Fatal(err)
	}
	for _, when := range []time.Time{time.Date(2300, 1, 1, 12, 0, 0, 1, time.UTC),
		time.Date(1905, 2, 3, 4, 5, 6, 7, time.UTC)} {
		ts, err := unix.TimeToTimespec(when)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{small, large, src + "/d"} {
			err := unix.UtimesNanoAt(unix.AT_FDCWD, name, []unix.Timespec{ts, ts}, 0)
			if err != nil {
				t.Fatal(err)
			}
		}
		bothWays(t, src, func(t *testing.T, r Result, err error, notes, got string) {
			if err != nil || r.Files != 2 {
				t.Errorf("%+v, %v, %s", r, err, notes)
			}
			for _, name := range []string{"d/small", "d/large", "d"} {
				st, err := os.Stat(filepath.Join(got, name))
				if err != nil || !st.ModTime().Equal(when) {
					t.Errorf("%s: %v, want %v; %v", name, st.ModTime(), when, err)
				}
			}
		})
		b := start(t, transfer.TreeConfig{})
		for _, unchanged := range []int{0, 2} {
			r, err := Up(patience(t), b.config(1), []string{src}, ".")
			if err != nil || r.Unchanged != unchanged {
				t.Errorf("%v: %+v, %v, want %d unchanged", when, r, err, unchanged)
			}
		}
	}
}

// As scp does, cp copies the targets of symbolic links. Links that lead to a directory above, to nothing, or out of the
// exported directory are skipped, named and counted.
func TestLinksAreFollowed(t *testing.T) {
	src := t.TempDir() + "/src"
	oneFile(t, src, "file")
	oneFile(t, src, "d/inside")
	if err := errors.Join(os.Symlink("file", src+"/link"), os.Symlink("../d", src+"/d/loop"),
		os.Symlink(".", src+"/dot"), os.Symlink("d", src+"/dir"),
		os.Symlink("nowhere", src+"/broken")); err != nil {
		t.Fatal(err)
	}
	bothWays(t, src, func(t *testing.T, r Result, err error, notes, got string) {
		if !errors.Is(err, ErrLeftOut) || r.Files != 4 || r.LeftOut != 4 {
			t.Errorf("%+v, %v, %s", r, err, notes)
		}
		for _, name := range []string{"loop", "dot", "broken"} {
			if !strings.Contains(notes, name+": skipped (symbolic link to") {
				t.Errorf("%s is not named: %s", name, notes)
			}
		}
		for name, want := range map[string]string{"link": "file", "dir/inside": "d/inside"} {
			b, err := os.ReadFile(filepath.Join(got, name))
			if string(b) != want || err != nil {
				t.Errorf("%s: %q, %v", name, b, err)
			}
		}
		if st, err := os.Lstat(got + "/link"); err != nil || !st.Mode().IsRegular() {
			t.Errorf("%v, %v", st, err)
		}
	})
	b := start(t, transfer.TreeConfig{})
	if err := os.Symlink(src, b.dir+"/out"); err != nil {
		t.Fatal(err)
	}
	r, err := Down(patience(t), b.config(1), []string{"."}, t.TempDir()+"/new")
	if !errors.Is(err, ErrLeftOut) || r.Files != 0 || r.LeftOut != 1 {
		t.Errorf("a link out of the directory: %+v, %v", r, err)
	}
}

// Names of unfinished copies in a tree are not copied. They are named and counted.
func TestUnfinishedCopiesAreNamed(t *testing.T) {
	b := start(t, transfer.TreeConfig{})
	src := t.TempDir() + "/src"
	oneFile(t, src, "x")
	names := []string{".a.xwarp-partial", ".b.0123456789abcdef.xwarp-staged"}
	for _, name := range names {
		oneFile(t, src, name)
	}
	r, err := Up(patience(t), b.config(1), []string{src}, ".")
	if !errors.Is(err, ErrLeftOut) || r.Files != 1 || r.LeftOut != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	for _, name := range names {
		if !strings.Contains(fmt.Sprint(b.notes), name+": skipped (name of an unfinished copy)") {
			t.Errorf("%s is not named: %q", name, b.notes)
		}
	}
}
