package staging

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// traced is an environment variable that makes the test program replace the file whose path is its argument.
const traced = "XWARP_TEST_REPLACE"

func TestMain(m *testing.M) {
	if os.Getenv(traced) != "" {
		if err := replace(os.Args[1]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// replace gives a file new content.
func replace(path string) error {
	d, err := OpenDir(filepath.Dir(path))
	if err != nil {
		return err
	}
	f, err := d.Create(filepath.Base(path), 0o600)
	if err != nil {
		return err
	}
	if _, err := f.WriteString("new"); err != nil {
		return err
	}
	return f.Commit()
}

// names returns the names in the directory.
func (d *Dir) names() (names []string, err error) {
	list, err := os.ReadDir(d.f.Name())
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names, err
}

// openTemp returns a directory of the test, with its path.
func openTemp(t *testing.T) (string, *Dir) {
	t.Helper()
	path := t.TempDir()
	d, err := OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return path, d
}

// TestBatchLeavesNoNames: new files of a batch have no name before Commit, so a killed process leaves none behind. A
// file that another process created meanwhile stays.
func TestBatchLeavesNoNames(t *testing.T) {
	path, d := openTemp(t)
	var b Batch
	defer b.Close()
	modified := time.Unix(1e9, 1e6)
	for _, name := range []string{"mine", "theirs"} {
		if err := b.Add(d, name, false, 0o640, modified, []byte("new")); err != nil {
			t.Fatal(err)
		}
	}
	if names, err := d.names(); err != nil || len(names) > 0 {
		t.Fatalf("names before Commit: %q, %v", names, err)
	}
	theirs := filepath.Join(path, "theirs")
	if err := os.WriteFile(theirs, []byte("their content"), 0o600); err != nil {
		t.Fatal(err)
	}
	if errs := b.Commit(); errs[0] != nil || !errors.Is(errs[1], fs.ErrExist) {
		t.Fatalf("errors of Commit: %v", errs)
	}
	if got, err := os.ReadFile(theirs); string(got) != "their content" {
		t.Errorf("the file of another process has %q, %v", got, err)
	}
	st, err := os.Stat(filepath.Join(path, "mine"))
	if err != nil || st.Size() != 3 || st.Mode() != 0o640 || !st.ModTime().Equal(modified) {
		t.Errorf("the file of the batch: %+v, %v", st, err)
	}
	if names, err := d.names(); err != nil || len(names) != 2 {
		t.Errorf("names after Commit: %q, %v", names, err)
	}
}

// TestBatchPermissions: each file of a batch gets its own permissions, whatever the umask.
func TestBatchPermissions(t *testing.T) {
	path, d := openTemp(t)
	old := unix.Umask(0o027)
	defer unix.Umask(old)
	if err := os.WriteFile(filepath.Join(path, "4"), []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	var b Batch
	defer b.Close()
	modes := []fs.FileMode{0o640, 0o666, 0o666, 0o600, 0o755, 0o755, 0o400}
	for i, mode := range modes {
		err := b.Add(d, fmt.Sprint(i), i == 4, mode, time.Unix(1, 0), []byte("new"))
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, err := range b.Commit() {
		st, e := os.Stat(filepath.Join(path, fmt.Sprint(i)))
		if err = errors.Join(err, e); err != nil || st.Mode() != modes[i] || st.Size() != 3 {
			t.Errorf("file %d: %v, %v", i, st, err)
		}
	}
}

// TestOrder checks with strace the order in which data and names reach the disk: no name may refer to data that is not
// on disk.
func TestOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.Command("strace", "-f", "-y", "-qq", "-e",
		"trace=fsync,fdatasync,renameat,renameat2,unlinkat", "-o", path+".trace", os.Args[0],
		path)
	c.Env = append(os.Environ(), traced+"=1")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v (make setup installs strace)\n%s", err, out)
	}
	b, err := os.ReadFile(path + ".trace")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"fsync staged", "rename staged file", "fsync dir"}
	if got := calls(string(b), filepath.Dir(path)); !slices.Equal(got, want) {
		t.Errorf("%q, want %q\n%s", got, want, b)
	}
	if b, err := os.ReadFile(path); string(b) != "new" || err != nil {
		t.Errorf("the file has %q, %v", b, err)
	}
}

// calls returns the successful system calls of a trace, with names resolved.
func calls(trace, dir string) (list []string) {
	name := func(s string) string {
		switch base := filepath.Base(s); {
		case strings.HasSuffix(base, staged):
			return "staged"
		case s == dir:
			return "dir"
		default:
			return base
		}
	}
	sync := regexp.MustCompile(`f(?:data)?sync\(\d+<(.*)>\) += 0`)
	rename := regexp.MustCompile(`renameat2?\(.*?, "(.*?)", .*?, "(.*?)".*\) += 0`)
	unlink := regexp.MustCompile(`unlinkat\(.*?, "(.*?)", 0\) += 0`)
	for line := range strings.Lines(trace) {
		if m := sync.FindStringSubmatch(line); m != nil {
			list = append(list, "fsync "+name(m[1]))
		} else if m := rename.FindStringSubmatch(line); m != nil {
			list = append(list, "rename "+name(m[1])+" "+name(m[2]))
		} else if m := unlink.FindStringSubmatch(line); m != nil {
			list = append(list, "unlink "+name(m[1]))
		}
	}
	return list
}

// TestBusy: a partial file has one writer at a time, even within a process.
func TestBusy(t *testing.T) {
	dir := t.TempDir()
	d, err := OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	p, err := d.Resume("file", 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Resume("file", 0o600); !errors.Is(err, ErrBusy) {
		t.Errorf("resumed twice: %v", err)
	}
	if err := p.Keep(); err != nil {
		t.Fatal(err)
	}
	if p, err = d.Resume("file", 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.Drop(); err != nil {
		t.Error(err)
	}
	if list, err := os.ReadDir(dir); len(list) != 0 || err != nil {
		t.Errorf("left behind: %v, %v", list, err)
	}
}

// TestPartialOfOthers: a partial file that is a symbolic link, or has a second hard link, is not resumed.
func TestPartialOfOthers(t *testing.T) {
	dir := t.TempDir()
	d, err := OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := errors.Join(os.WriteFile(dir+"/secret", []byte("x"), 0o600),
		os.Link(dir+"/secret", dir+"/.linked.xwarp-partial"),
		os.Symlink("secret", dir+"/.link.xwarp-partial")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"linked", "link"} {
		if _, err := d.Resume(name, 0o600); err == nil {
			t.Errorf("%s is resumed", name)
		}
	}
}

// TestResumeNamesTheCause: the errors for a directory without write permission and for an unreadable partial file
// differ.
func TestResumeNamesTheCause(t *testing.T) {
	dir := t.TempDir()
	d, err := OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := os.WriteFile(dir+"/.there.xwarp-partial", nil, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	resume := func(name string) error {
		_, err := d.Resume(name, 0o600)
		return err
	}
	for name, want := range map[string]string{"new": "may not write to " + dir,
		"there": "if the file stays, remove it"} {
		err := withoutRights(func() error { return resume(name) })
		if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}

// withoutRights calls f on a thread with the file permissions of an ordinary user.
func withoutRights(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		unix.RawSyscall(unix.SYS_SETFSGID, 65534, 0, 0)
		unix.RawSyscall(unix.SYS_SETFSUID, 65534, 0, 0)
		done <- f()
	}()
	return <-done
}
