// Package staging replaces files atomically. New content is written to a staged file beside the target, made durable,
// and renamed: after any crash the name leads to all of the old content or all of the new one.
package staging

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// MaxName is the maximum length of a name in bytes in file systems.
const MaxName = 255

// Suffixes of file names.
const (
	staged  = ".xwarp-staged"  // after 16 random digits: only the creator of such a file uses it
	partial = ".xwarp-partial" // a file that may be resumed
)

// stem returns the beginning of the names of a file's staged files. A name that is too long is replaced by the first
// half of its SHA-256.
func stem(name string) string {
	if len(name) > MaxName-len("..0123456789abcdef"+staged) {
		sum := sha256.Sum256([]byte(name))
		return fmt.Sprintf(".%x", sum[:16])
	}
	return "." + name
}

// Dir is a directory of files to replace. It may be used by several goroutines.
type Dir struct{ f *os.File }

// OpenDir opens a directory by its path.
func OpenDir(path string) (*Dir, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return &Dir{f}, nil
}

// NewDir takes ownership of f, a directory open for reading.
func NewDir(f *os.File) *Dir { return &Dir{f} }

// Close closes the directory. Files created in it must be committed or dropped before.
func (d *Dir) Close() error { return d.f.Close() }

func (d *Dir) fd() int { return int(d.f.Fd()) }

func (d *Dir) path(name string) string { return filepath.Join(d.f.Name(), name) }

// openFile is os.OpenFile in the directory. It does not follow symbolic links and does not block.
func (d *Dir) openFile(name string, flags int, mode fs.FileMode) (*os.File, error) {
	fd, err := d.openFD(name, flags, mode)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: d.path(name), Err: err}
	}
	return os.NewFile(uintptr(fd), d.path(name)), nil
}

func (d *Dir) openFD(name string, flags int, mode fs.FileMode) (int, error) {
	const always = unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
	return unix.Openat(d.fd(), name, flags|always, uint32(mode.Perm()))
}

// OpenFD opens a file of the directory for reading, without following symbolic links. The caller closes the descriptor.
func (d *Dir) OpenFD(name string) (int, error) { return d.openFD(name, unix.O_RDONLY, 0) }

// Length returns the length of a file in bytes, or -1 if it does not exist. It does not follow symbolic links.
func (d *Dir) Length(name string) int64 {
	var st unix.Stat_t
	if unix.Fstatat(d.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return -1
	}
	return st.Size
}

func (d *Dir) remove(name string) error {
	if err := unix.Unlinkat(d.fd(), name, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &fs.PathError{Op: "remove", Path: d.path(name), Err: err}
	}
	return nil
}

// Sync makes the names in the directory durable.
func (d *Dir) Sync() error {
	if err := d.f.Sync(); err != nil {
		return fmt.Errorf("directory %s: %w", d.f.Name(), err)
	}
	return nil
}

// File is staged content. It is locked against other processes.
type File struct {
	*os.File
	dir  *Dir
	name string // final name
	now  string // current name
}

// Create creates an empty file to replace name.
func (d *Dir) Create(name string, mode fs.FileMode) (*File, error) {
	var random [8]byte
	rand.Read(random[:])
	now := fmt.Sprintf("%s.%x%s", stem(name), random, staged)
	f, err := d.openFile(now, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return nil, err
	}
	return d.lock(&File{f, d, name, now})
}

// Resume is Create, except that it opens the partial file that Keep left for name, if any. It fails with ErrBusy while
// another process uses that file.
func (d *Dir) Resume(name string, mode fs.FileMode) (*File, error) {
	now := stem(name) + partial
	f, err := d.openFile(now, os.O_RDWR|os.O_CREATE, mode)
	if errors.Is(err, fs.ErrPermission) {
		err = fmt.Errorf("%w: %s", err, d.refusal(now))
	}
	if err != nil {
		return nil, err
	}
	if err := d.own(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return d.lock(&File{f, d, name, now})
}

// refusal explains why permissions forbid opening a partial file, and gives the remedy. An existing one of this user
// may be unreadable because CommitAs sets the final permissions shortly before the rename.
func (d *Dir) refusal(partial string) string {
	var st unix.Stat_t
	if err := unix.Fstatat(d.fd(), partial, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Sprintf("user %d may not write to %s: give this user the directory, or another one",
			os.Geteuid(), d.f.Name())
	}
	return "another copy is about to rename this file, or ended before it did: if the file " +
		"stays, remove it"
}

// ErrBusy is wrapped if another process, or another part of this one, is writing the same file.
var ErrBusy = errors.New("another process is writing it")

func (d *Dir) lock(f *File) (*File, error) {
	err := Lock(f.File)
	if err == nil {
		return f, nil
	}
	return nil, errors.Join(err, f.Close())
}

// Lock locks f against other processes as long as f is open. It fails with ErrBusy if another one has the lock.
func Lock(f *os.File) error {
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return fmt.Errorf("%s: %w", f.Name(), ErrBusy)
	case err != nil:
		return fmt.Errorf("locking %s: %w", f.Name(), err)
	}
	return nil
}

// own checks that f is a regular file of this user with a single link. In a directory that others may write to, another
// user's file could become the content.
func (d *Dir) own(f *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != os.Geteuid() || st.Nlink != 1 {
		return fmt.Errorf("%s was not created by this user (user %d, %d links): remove it",
			f.Name(), st.Uid, st.Nlink)
	}
	return nil
}

// Allocate makes f, which must not be longer, n bytes long and allocates them on disk. A file system that cannot
// allocate only sets the length.
func (f *File) Allocate(n int64) error {
	if n == 0 {
		return nil
	}
	err := unix.Fallocate(int(f.Fd()), 0, 0, n)
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = f.Truncate(n)
	}
	if err != nil {
		return fmt.Errorf("%d bytes of disk for %s: %w", n, f.dir.path(f.name), err)
	}
	return nil
}

// SetTime sets the modification and access times of a file or directory.
func SetTime(f *os.File, t time.Time) error {
	if err := setTime(int(f.Fd()), t); err != nil {
		return &fs.PathError{Op: "utimensat", Path: f.Name(), Err: err}
	}
	return nil
}

// setTime does not convert t to a count of nanoseconds, which would overflow in the year 2262.
func setTime(fd int, t time.Time) error {
	when, err := unix.TimeToTimespec(t)
	if err != nil {
		return err
	}
	return unix.UtimesNanoAt(fd, "", []unix.Timespec{when, when}, unix.AT_EMPTY_PATH)
}

// ErrUnsure is wrapped if a name leads to the new content but might lead to the old one after a system crash, because
// the disk failed.
var ErrUnsure = errors.New("the old content may return after a power failure")

// CommitAs is Commit, and gives f the permissions mode. If it fails, except with ErrUnsure, f has its previous
// permissions again, so that a later Resume can open it. If the process ends just before the rename, f keeps mode.
func (f *File) CommitAs(mode fs.FileMode) error {
	st, err := f.Stat()
	if err == nil {
		err = f.Sync() // now, so that little time passes between Chmod and the rename
	}
	if err == nil {
		err = f.Chmod(mode)
	}
	if err != nil {
		return fmt.Errorf("writing %s to disk: %w", f.Name(), err)
	}
	if err = f.Commit(); err != nil && !errors.Is(err, ErrUnsure) {
		err = errors.Join(err, f.Chmod(st.Mode().Perm()))
	}
	return err
}

// Commit makes f durable under its name, in place of a regular file. If it fails, except with ErrUnsure, the name leads
// to its old content.
func (f *File) Commit() error {
	if err := f.Sync(); err != nil {
		return fmt.Errorf("writing %s to disk: %w", f.Name(), err)
	}
	if err := f.dir.checkName(f.name); err != nil {
		return err
	}
	return f.rename(f.name)
}

// checkName fails if a name leads to something other than a regular file.
func (d *Dir) checkName(name string) error {
	var now unix.Stat_t
	err := unix.Fstatat(d.fd(), name, &now, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return &fs.PathError{Op: "stat", Path: d.path(name), Err: err}
	case now.Mode&unix.S_IFMT != unix.S_IFREG:
		return fmt.Errorf("%s: %w", d.path(name), ErrReplaced)
	}
	return nil
}

// ErrReplaced is wrapped if a name leads to something that is not a regular file.
var ErrReplaced = errors.New("it was replaced by a link, directory or other file")

func (f *File) rename(name string) error {
	if err := f.dir.rename(f.now, name); err != nil {
		return err
	}
	f.now = name
	if err := f.dir.Sync(); err != nil {
		return fmt.Errorf("%w: %w", err, ErrUnsure)
	}
	return nil
}

func (d *Dir) rename(old, name string) error {
	if err := unix.Renameat(d.fd(), old, d.fd(), name); err != nil {
		return &os.LinkError{Op: "rename", Old: d.path(old), New: d.path(name), Err: err}
	}
	return nil
}

// renameNew is rename, but fails if name exists. On a file system without RENAME_NOREPLACE it only checks before the
// rename.
func (d *Dir) renameNew(old, name string) error {
	err := unix.Renameat2(d.fd(), old, d.fd(), name, unix.RENAME_NOREPLACE)
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS):
	case d.Length(name) >= 0:
		err = unix.EEXIST
	default:
		return d.rename(old, name)
	}
	return &os.LinkError{Op: "rename", Old: d.path(old), New: d.path(name), Err: err}
}

// Keep closes a file that Resume opened, for a later Resume.
func (f *File) Keep() error { return f.Close() }

// Drop closes f and removes it. It must not have been committed.
func (f *File) Drop() error {
	return errors.Join(f.dir.remove(f.now), f.Close())
}

// Leftover reports whether a name is that of a staged or partial file.
func Leftover(name string) bool {
	return strings.HasPrefix(name, ".") && (strings.HasSuffix(name, staged) ||
		strings.HasSuffix(name, partial))
}

// Stale reports whether an unlocked file is useless: it is a staged file, or a partial file that was last written
// before old.
func Stale(name string, written, old time.Time) bool {
	return Leftover(name) && (strings.HasSuffix(name, staged) ||
		strings.HasSuffix(name, partial) && written.Before(old))
}
