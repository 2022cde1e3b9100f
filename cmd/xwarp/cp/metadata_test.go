package cp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/engine/transfer"
)

// bothWays copies src to a server, and from a server. check gets the result and the path of each copy.
func bothWays(t *testing.T, src string,
	check func(t *testing.T, r Result, err error, notes, got string)) {
	t.Helper()
	t.Run("up", func(t *testing.T) {
		b := start(t, transfer.TreeConfig{})
		r, err := Up(patience(t), b.config(2), []string{src}, ".")
		check(t, r, err, strings.Join(b.notes, "\n"), filepath.Join(b.dir, filepath.Base(src)))
	})
	t.Run("down", func(t *testing.T) {
		b := serving(t, filepath.Dir(src), transfer.TreeConfig{})
		out := filepath.Join(t.TempDir(), "out")
		r, err := Down(patience(t), b.config(2), []string{filepath.Base(src)}, out)
		check(t, r, err, strings.Join(b.notes, "\n"), out)
	})
}

// TestUmask compares the umask that is read with the one that is set.
func TestUmask(t *testing.T) {
	old := unix.Umask(0o027)
	defer unix.Umask(old)
	for _, want := range []int{0, 0o022, 0o077, 0o777} {
		unix.Umask(want)
		if got, err := umask(); int(got) != want || err != nil {
			t.Errorf("umask %04o, %v; want %04o", got, err, want)
		}
	}
}

// TestDirectoryMetadata copies directories with permissions and times, under a umask that would change them.
func TestDirectoryMetadata(t *testing.T) {
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	src := filepath.Join(t.TempDir(), "src")
	for i, mode := range []fs.FileMode{0o755, 0o500, 0o750, 0o777} {
		dir := filepath.Join(src, strings.Repeat("d/", i)+"d")
		if err := errors.Join(os.MkdirAll(dir, 0o700),
			os.WriteFile(dir+"/file", []byte("x"), 0o600)); err != nil {
			t.Fatal(err)
		}
		defer os.Chmod(dir, 0o700) // or the test's directory could not be removed
		defer os.Chmod(dir, mode)
	}
	when := time.Unix(1e9, 123456789)
	err := filepath.WalkDir(src, func(name string, e fs.DirEntry, err error) error {
		if e.IsDir() {
			mode := []fs.FileMode{0o755, 0o500, 0o750, 0o777, 0o711}[strings.Count(name, "/d")%5]
			err = errors.Join(err, os.Chmod(name, mode))
		}
		return err
	})
	if err == nil {
		err = filepath.WalkDir(src, func(name string, e fs.DirEntry, err error) error {
			return errors.Join(err, os.Chtimes(name, when, when))
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	want := image(t, src)
	for name, at := range want { // image has no times of directories
		st, err := os.Stat(filepath.Join(src, name))
		if err != nil || !st.ModTime().Equal(when) {
			t.Fatalf("%s: %s %v", name, at, err)
		}
	}
	bothWays(t, src, func(t *testing.T, r Result, err error, notes, got string) {
		if err != nil || r.Files != 4 || notes != "" {
			t.Fatalf("%+v, %v, %s", r, err, notes)
		}
		same(t, src, got)
		for name := range want {
			st, err := os.Stat(filepath.Join(got, name))
			if err != nil || !st.ModTime().Equal(when) {
				t.Errorf("%s was changed at %v, want %v; %v", name, st.ModTime(), when, err)
			}
		}
	})
}

// TestSparseFiles copies files with holes, which must stay holes.
func TestSparseFiles(t *testing.T) {
	src := filepath.Join(t.TempDir(), "src")
	const size = 48 << 20
	for name, at := range map[string][]int64{
		"none": nil, "begin": {0}, "middle": {20<<20 + 1}, "end": {size - 1},
		"several": {0, 9 << 20, 9<<20 + 4096, 30 << 20},
	} {
		name = filepath.Join(src, name)
		if err := os.MkdirAll(src, 0o755); err != nil {
			t.Fatal(err)
		}
		f, err := os.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, off := range at {
			_, e := f.WriteAt([]byte("data"), min(off, size-4))
			err = errors.Join(err, e)
		}
		if err = errors.Join(err, f.Truncate(size), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	bothWays(t, src, func(t *testing.T, r Result, err error, notes, got string) {
		if err != nil || r.Files != 5 || r.Bytes > 4<<20 {
			t.Fatalf("%+v, %v, %s", r, err, notes)
		}
		same(t, src, got)
		for _, name := range []string{"none", "begin", "middle", "end", "several"} {
			var a, b unix.Stat_t
			if err := errors.Join(unix.Stat(filepath.Join(src, name), &a),
				unix.Stat(filepath.Join(got, name), &b)); err != nil || b.Blocks > a.Blocks+1024 {
				t.Errorf("%s has %d blocks, the source %d; %v", name, b.Blocks, a.Blocks, err)
			}
		}
	})
}

// TestResumedSparseFile: data that an earlier copy left in a hole becomes a hole again.
func TestResumedSparseFile(t *testing.T) {
	const size = 4 * transfer.PieceLen
	for _, up := range []bool{true, false} {
		b := start(t, transfer.TreeConfig{})
		from, to := t.TempDir(), b.dir
		if !up {
			from, to = to, from
		}
		f, err := os.Create(from + "/file")
		if err != nil {
			t.Fatal(err)
		}
		for _, off := range []int64{1 << 20, 20 << 20} {
			_, e := f.WriteAt([]byte("data"), off)
			err = errors.Join(err, e)
		}
		err = errors.Join(err, f.Truncate(size), f.Close(),
			os.WriteFile(to+"/.file.xwarp-partial", bytes.Repeat([]byte{1}, size/2), 0o600))
		if err != nil {
			t.Fatal(err)
		}
		var r Result
		if up {
			r, err = Up(patience(t), b.config(2), []string{from + "/file"}, "file")
		} else {
			r, err = Down(patience(t), b.config(2), []string{"file"}, to)
		}
		if err != nil || r.Files != 1 {
			t.Fatalf("%+v, %v, %q", r, err, b.notes)
		}
		same(t, from, to)
		var st unix.Stat_t
		if err := unix.Stat(to+"/file", &st); err != nil || st.Blocks*512 > 1<<20 {
			t.Errorf("the copy has %d blocks, %v", st.Blocks, err)
		}
	}
}

// TestWorkersEndTogether: files of two extents, which two connections finish at the same moment, are complete.
func TestWorkersEndTogether(t *testing.T) {
	src := filepath.Join(t.TempDir(), "src")
	if err := os.Mkdir(src, 0o755); err != nil {
		t.Fatal(err)
	}
	const files = 300
	for i := range files {
		f, err := os.Create(filepath.Join(src, fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		for _, off := range []int64{0, 1 << 20} {
			_, e := fmt.Fprint(io.NewOffsetWriter(f, off), "data of file ", i)
			err = errors.Join(err, e)
		}
		if err = errors.Join(err, f.Truncate(2<<20), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	bothWays(t, src, func(t *testing.T, r Result, err error, notes, got string) {
		if err != nil || r.Files != files {
			t.Fatalf("%+v, %v, %s", r, err, notes)
		}
		same(t, src, got)
	})
}

// TestWhatIsNotCopied checks that lost attributes are noted, and that skipped files are noted and counted.
func TestWhatIsNotCopied(t *testing.T) {
	for _, tc := range []struct {
		name, note string
		make       func(dir string) error
		want       error
		result     Result
	}{
		{"symbolic link", "link: skipped",
			func(dir string) error { return os.Symlink("nowhere", dir+"/link") },
			ErrLeftOut, Result{Files: 1, LeftOut: 1, Bytes: 1}},
		{"pipe", "pipe: skipped",
			func(dir string) error { return unix.Mkfifo(dir+"/pipe", 0o600) },
			ErrLeftOut, Result{Files: 1, LeftOut: 1, Bytes: 1}},
		{"set-user-ID", "not copied (04000)",
			func(dir string) error { return os.Chmod(dir+"/x", 0o755|fs.ModeSetuid) },
			nil, Result{Files: 1, Bytes: 1}},
		{"hard link", "2 hard links",
			func(dir string) error { return os.Link(dir+"/x", dir+"/y") },
			nil, Result{Files: 2, Bytes: 2}},
		{"long name", "", func(dir string) error {
			return os.WriteFile(filepath.Join(dir, strings.Repeat("n", 255)), []byte("long"), 0o644)
		}, nil, Result{Files: 2, Bytes: 5}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			src := filepath.Join(t.TempDir(), "src")
			if err := errors.Join(os.Mkdir(src, 0o755), os.WriteFile(src+"/x", []byte("x"), 0o644),
				tc.make(src)); err != nil {
				t.Fatal(err)
			}
			bothWays(t, src, func(t *testing.T, r Result, err error, notes, got string) {
				if !errors.Is(err, tc.want) || r != tc.result ||
					!strings.Contains(notes, tc.note) || tc.note == "" && notes != "" {
					t.Errorf("%+v, %v, notes %q", r, err, notes)
				}
				if b, err := os.ReadFile(got + "/x"); string(b) != "x" || err != nil {
					t.Errorf("x has %q, %v", b, err)
				}
			})
		})
	}
}

// TestPacks copies many small files, and one that is too large for a pack. In a second copy some files fail: the others
// must be copied, and the server must count the bytes in its directory right.
func TestPacks(t *testing.T) {
	src := filepath.Join(t.TempDir(), "src")
	const files = 3*transfer.MaxPacked + 7
	total := int64(0)
	for i := range files {
		dir := filepath.Join(src, fmt.Sprint(i%7))
		content := bytes.Repeat([]byte{byte(i)}, i%5000)
		if i == 77 {
			content = make([]byte, transfer.PackedLen+1)
		}
		total += int64(len(content))
		name := filepath.Join(dir, fmt.Sprint(i))
		if err := errors.Join(os.MkdirAll(dir, 0o755),
			os.WriteFile(name, content, fs.FileMode(0o400+i%0o400)),
			os.Chtimes(name, time.Time{}, time.Unix(int64(i), 5))); err != nil {
			t.Fatal(err)
		}
	}
	bothWays(t, src, func(t *testing.T, r Result, err error, notes, got string) {
		if want := (Result{Files: files, Bytes: total}); err != nil || r != want {
			t.Fatalf("%+v, %v, want %+v; %s", r, err, want, notes)
		}
		same(t, src, got)
	})
	dir := t.TempDir()
	if err := errors.Join(os.MkdirAll(dir+"/src/3/10", 0o755), os.MkdirAll(dir+"/src/4", 0o755),
		os.WriteFile(dir+"/src/4/11", []byte("older"), 0o600)); err != nil {
		t.Fatal(err)
	}
	b := serving(t, dir, transfer.TreeConfig{Size: total - 30}) // file 10 fails, and the others exceed this
	r, err := Up(patience(t), b.config(2), []string{src}, ".")
	notes := strings.Join(b.notes, "\n")
	if !errors.Is(err, ErrFailed) || r.Files+r.Failed != files || r.Failed < 2 || r.Failed > 20 ||
		!strings.Contains(notes, "3/10 is a directory at the destination") ||
		!strings.Contains(notes, "does not fit: the directory uses") {
		t.Errorf("%+v, %v, %s", r, err, notes)
	}
	if content, err := os.ReadFile(b.dir + "/src/4/11"); len(content) != 11 || err != nil {
		t.Errorf("the older content is %q, %v", content, err)
	}
	byteCount, _ := b.tree.Used()
	if got := onDisk(t, b.dir); byteCount != got {
		t.Errorf("%d bytes are counted, %d are there", byteCount, got)
	}
}

// onDisk returns the number of bytes of all files in and below dir.
func onDisk(t *testing.T, dir string) (total int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			var st fs.FileInfo
			st, err = e.Info()
			total += st.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return total
}
