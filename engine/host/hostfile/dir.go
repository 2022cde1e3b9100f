// Package hostfile opens files so that no less privileged user can redirect this process: a link or directory of
// another user could make root write elsewhere.
package hostfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// maxFile is the largest file that Read accepts, in bytes. These files have a few lines.
const maxFile = 1 << 20

// Dir is a directory whose files only this user and root can change.
type Dir struct {
	f    *os.File
	path string
}

// OpenDir opens a directory. With create it creates the missing directories of its path with mode 0700. It fails if the
// directory or one above it belongs to a user other than this one and root, or if others may write to it. A directory
// above may be writable if it is sticky, as /tmp is. It follows no symbolic link. It waits for an exclusive lock on the
// directory, which this process holds until Close.
func OpenDir(path string, create bool) (*Dir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	at, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	name := ""
	for part := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		if part == "" {
			break // the root directory itself
		}
		name += "/" + part
		next, err := step(at, part, create)
		unix.Close(at)
		if err == nil {
			err = private(next, name == path)
		}
		if err != nil {
			return nil, fmt.Errorf("directory %s: %w", name, err)
		}
		at = next
	}
	d := &Dir{os.NewFile(uintptr(at), path), path}
	if err := unix.Flock(at, unix.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", path, err), d.Close())
	}
	return d, nil
}

// step opens the directory name in the directory at. With create it creates a missing one.
func step(at int, name string, create bool) (int, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(at, name, flags, 0)
	if errors.Is(err, fs.ErrNotExist) && create {
		if err = unix.Mkdirat(at, name, 0o700); err == nil || errors.Is(err, fs.ErrExist) {
			fd, err = unix.Openat(at, name, flags, 0)
		}
	}
	if errors.Is(err, unix.ENOTDIR) {
		err = fmt.Errorf("%w: symbolic links are not followed: use the target", err)
	}
	return fd, err
}

// private checks a directory, the last one of a path or one above it, and closes it if the check fails.
func private(fd int, last bool) error {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	if err == nil {
		err = ours(&st, !last && st.Mode&unix.S_ISVTX != 0)
	}
	if err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	return nil
}

// ours checks that a file belongs to this user or root and, unless shared, that no other user may write to it.
func ours(st *unix.Stat_t, shared bool) error {
	switch {
	case st.Uid != 0 && int(st.Uid) != os.Geteuid():
		return fmt.Errorf("owned by user %d, who could change its contents", st.Uid)
	case !shared && (st.Mode&0o002 != 0 || st.Mode&0o020 != 0 && st.Gid != 0):
		return fmt.Errorf("writable by others (mode %04o): chmod go-w", st.Mode&0o7777)
	}
	return nil
}

// Close unlocks the directory.
func (d *Dir) Close() error { return d.f.Close() }

// Read returns the content of a regular file of at most maxFile bytes that belongs to this user or root, and that no
// other user may write to. If the file does not exist, errors.Is(err, fs.ErrNotExist) is true.
func (d *Dir) Read(name string) (b []byte, err error) {
	fd, err := unix.Openat(int(d.f.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|
		unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: filepath.Join(d.path, name), Err: err}
	}
	f := os.NewFile(uintptr(fd), name)
	defer func() { err = errors.Join(err, f.Close()) }()
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil {
		err = ours(&st, false)
	}
	if err == nil && (st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > maxFile) {
		err = fmt.Errorf("not a regular file of at most %d bytes", maxFile)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(d.path, name), err)
	}
	return io.ReadAll(io.LimitReader(f, maxFile))
}

// Write replaces the content of the file with b atomically, also across a crash. The file gets mode 0600.
func (d *Dir) Write(name string, b []byte) error {
	at, tmp := int(d.f.Fd()), name+".new"
	if err := d.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	fd, err := unix.Openat(at, tmp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|
		unix.O_CLOEXEC, 0o600)
	if err != nil {
		return &fs.PathError{Op: "create", Path: filepath.Join(d.path, tmp), Err: err}
	}
	f := os.NewFile(uintptr(fd), filepath.Join(d.path, tmp))
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = unix.Renameat(at, tmp, at, name)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", filepath.Join(d.path, name), err), d.Remove(tmp))
	}
	return d.f.Sync()
}

// Remove removes a file, or a link without its target.
func (d *Dir) Remove(name string) error {
	if err := unix.Unlinkat(int(d.f.Fd()), name, 0); err != nil {
		return &fs.PathError{Op: "remove", Path: filepath.Join(d.path, name), Err: err}
	}
	return nil
}

// Beneath opens the file that path leads to below root, and nothing outside of root, even while another process renames
// directories and links. flags are those of open(2); O_PATH is not supported. Neither a pipe nor a terminal makes it
// wait.
//
// os.Root opens one name of the path at a time with openat(2). openat2(2) would do it in one call, but systemd refuses
// that call to a unit with RestrictSUIDSGID=yes.
func Beneath(root *os.Root, path string, flags int) (*os.File, error) {
	return root.OpenFile(path, flags|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
}
