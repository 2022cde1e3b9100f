package staging

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// InPlace returns why a file must be overwritten instead of replaced, or "": after a rename other links would lead to
// the old content, a mount would be in the way, and its owner would lose it.
func InPlace(f *os.File) (why string, err error) {
	var st unix.Statx_t
	const want = unix.STATX_NLINK | unix.STATX_UID | unix.STATX_GID
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, want, &st); err != nil {
		return "", fmt.Errorf("%s: %w", f.Name(), err)
	}
	switch {
	case st.Nlink > 1:
		return fmt.Sprintf("it has %d names", st.Nlink), nil
	case st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0:
		return "it is mounted there", nil
	case int(st.Uid) != os.Geteuid() || int(st.Gid) != os.Getegid():
		return fmt.Sprintf("it is owned by user %d and group %d", st.Uid, st.Gid), nil
	}
	if _, err := unix.Fgetxattr(int(f.Fd()), "system.posix_acl_access", nil); err == nil {
		return "it has an access control list", nil
	}
	return "", nil
}

// Journal makes f durable as the future content of target, the file of its name. If it fails, nothing has changed.
// After it, Apply or the next Recover updates target.
func (f *File) Journal(target *os.File) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	// with all blocks allocated, it does not fail half way because the disk is full
	err = unix.Fallocate(int(target.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, max(st.Size(), 1))
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("%s: %d bytes of disk: %w", target.Name(), st.Size(), err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("writing %s to disk: %w", f.Name(), err)
	}
	if err := f.dir.checkName(f.name, target); err != nil {
		return err
	}
	return f.rename(stem(f.name) + journal)
}

// Apply copies a journal to target and removes its name. f stays open. It may be called again.
func (f *File) Apply(target *os.File) error {
	_, err := f.Seek(0, io.SeekStart)
	if err == nil {
		_, err = target.Seek(0, io.SeekStart)
	}
	n := int64(0)
	if err == nil {
		n, err = io.Copy(target, f.File)
	}
	if err == nil {
		err = target.Truncate(n)
	}
	if sum, ok := Sum(f.File); err == nil && ok {
		err = Note(target, sum)
	}
	if err == nil {
		err = target.Sync()
	}
	if err == nil {
		err = f.dir.remove(f.now)
	}
	if err == nil {
		err = f.dir.Sync()
	}
	if err != nil {
		return fmt.Errorf("writing %s from its journal %s: %w", target.Name(), f.now, err)
	}
	return nil
}

// Recover applies a journal for name left by a dead process. It reports whether there was one.
func (d *Dir) Recover(name string, target *os.File) (found bool, err error) {
	now := stem(name) + journal
	f, err := d.openFile(now, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err = d.own(f); err == nil {
		err = (&File{f, d, name, now}).Apply(target)
	}
	return err == nil, errors.Join(err, f.Close())
}
