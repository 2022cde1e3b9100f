package staging

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Dirs are the open directories of a batch, by path.
type Dirs map[string]*Dir

// Open returns the directory of a path, which open opens when it is the first of that path.
func (l Dirs) Open(path string, open func() (*Dir, error)) (*Dir, error) {
	if d := l[path]; d != nil {
		return d, nil
	}
	d, err := open()
	if err == nil {
		l[path] = d
	}
	return d, err
}

// Close closes the directories. l can be used again.
func (l Dirs) Close() (err error) {
	for path, d := range l {
		err = errors.Join(err, d.Close())
		delete(l, path)
	}
	return err
}

// Batch replaces many small files, each with a few system calls. Sync asks the disk once for all of them. One goroutine
// uses a Batch.
type Batch struct {
	files []batched
	disks map[uint64]*os.File // a directory of each file system that was written to, by device number
}

// batched is a file that waits for Commit.
type batched struct {
	fd       int
	dir      *Dir
	name     string // that Commit gives
	staged   *File  // of fd, which has another name until then; nil: it has none
	replaces bool   // its name has older content
}

// Add stages content for name in d, with its permissions and its time of change. d stays open until Commit or Close.
// It returns the length of the older content, -1 where there is none.
func (b *Batch) Add(d *Dir, name string, mode fs.FileMode, modified time.Time, content []byte) (
	older int64, err error) {
	older = -1
	var st unix.Stat_t
	if unix.Fstatat(d.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
		older = st.Size
	}
	f, err := d.createBatched(name, mode.Perm(), older >= 0)
	if err != nil {
		return 0, err
	}
	if err = f.write(content); err == nil {
		err = f.setAttr(b, mode.Perm(), modified)
	}
	if err != nil {
		err = &fs.PathError{Op: "write", Path: d.path(name), Err: err}
		return 0, errors.Join(err, f.drop())
	}
	b.files = append(b.files, f)
	return older, nil
}

// createBatched makes an empty file for name. One that replaces nothing has no name before Commit, where the file
// system supports O_TMPFILE: ext4 then changes the directory once and not three times.
func (d *Dir) createBatched(name string, mode fs.FileMode, replaces bool) (batched, error) {
	if !replaces {
		const flags = unix.O_RDWR | unix.O_TMPFILE | unix.O_CLOEXEC
		if fd, err := unix.Openat(d.fd(), ".", flags, uint32(mode)); err == nil {
			return batched{fd: fd, dir: d, name: name}, nil
		}
	}
	f, err := d.Create(name, 0o600)
	if err != nil {
		return batched{}, err
	}
	return batched{int(f.Fd()), d, name, f, replaces}, nil
}

func (f *batched) write(content []byte) error {
	for len(content) > 0 {
		n, err := unix.Write(f.fd, content)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		content = content[max(n, 0):]
	}
	return nil
}

// setAttr gives f its permissions, unless it was made with them, and its time of change. It records the file system.
func (f *batched) setAttr(b *Batch, mode fs.FileMode, modified time.Time) error {
	var st unix.Stat_t
	err := unix.Fstat(f.fd, &st)
	if err == nil && st.Mode&0o777 != uint32(mode) {
		err = unix.Fchmod(f.fd, uint32(mode))
	}
	if err == nil {
		err = setTime(f.fd, modified)
	}
	if err != nil || b.disks[st.Dev] != nil {
		return err
	}
	at, err := f.dir.openFile(".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	if b.disks == nil {
		b.disks = map[uint64]*os.File{}
	}
	b.disks[st.Dev] = at
	return nil
}

// close closes f. A file that has no name is gone then.
func (f *batched) close() error {
	if f.staged != nil {
		return f.staged.Close()
	}
	return unix.Close(f.fd)
}

// drop closes f, which has not been committed, and removes it.
func (f *batched) drop() error {
	if f.staged != nil {
		return f.staged.Drop()
	}
	return unix.Close(f.fd)
}

// Commit gives every file its name and closes it. The errors are those of the files, in the order of Add; nil is
// success. Older content is replaced only after the new content was written to the disk. A file without older content
// may be empty after a power failure that comes before Sync.
func (b *Batch) Commit() []error {
	errs := make([]error, len(b.files))
	for i := range b.files {
		errs[i] = b.files[i].writeBack(unix.SYNC_FILE_RANGE_WRITE)
	}
	for i := range b.files {
		f := &b.files[i]
		if errs[i] == nil {
			errs[i] = f.writeBack(unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER)
		}
		if errs[i] == nil {
			errs[i] = f.place()
		}
		if errs[i] != nil {
			errs[i] = errors.Join(errs[i], f.drop())
		} else {
			errs[i] = f.close()
		}
	}
	b.files = b.files[:0]
	return errs
}

// writeBack writes the content to the disk, where it replaces other content.
func (f *batched) writeBack(flags int) error {
	if !f.replaces {
		return nil
	}
	if err := unix.SyncFileRange(f.fd, 0, 0, flags); err != nil {
		return fmt.Errorf("writing %s to disk: %w", f.dir.path(f.name), err)
	}
	return nil
}

// place gives f its name, without asking the disk.
func (f *batched) place() error {
	if f.staged != nil {
		if err := f.dir.checkName(f.name, nil); err != nil {
			return err
		}
		return f.dir.rename(f.staged.now, f.name)
	}
	err := unix.Linkat(f.fd, "", f.dir.fd(), f.name, unix.AT_EMPTY_PATH)
	if errors.Is(err, unix.ENOENT) { // Linux before 6.10, without CAP_DAC_READ_SEARCH
		err = unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", f.fd), f.dir.fd(), f.name,
			unix.AT_SYMLINK_FOLLOW)
	}
	if err != nil {
		return &fs.PathError{Op: "link", Path: f.dir.path(f.name), Err: err}
	}
	return nil
}

// Sync makes every file that was committed durable, and whatever else the same file systems have in memory.
func (b *Batch) Sync() error {
	var failed error
	for _, d := range b.disks {
		if err := unix.Syncfs(int(d.Fd())); err != nil {
			err = fmt.Errorf("writing the file system of %s to disk: %w", d.Name(), err)
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// Close drops the files that are not committed, and forgets the file systems.
func (b *Batch) Close() error {
	var err error
	for i := range b.files {
		err = errors.Join(err, b.files[i].drop())
	}
	for _, d := range b.disks {
		err = errors.Join(err, d.Close())
	}
	*b = Batch{}
	return err
}
