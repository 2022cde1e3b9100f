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
	*File
	replaces bool // its name has older content
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
	f, err := d.createBatched(name, older >= 0)
	if err != nil {
		return 0, err
	}
	if _, err = f.Write(content); err == nil {
		err = f.Chmod(mode.Perm())
	}
	if err == nil {
		err = f.SetTime(modified)
	}
	if err == nil {
		err = b.noteDisk(f)
	}
	if err != nil {
		return 0, errors.Join(err, f.Drop())
	}
	b.files = append(b.files, batched{f, older >= 0})
	return older, nil
}

// createBatched makes an empty file for name. One that replaces nothing has no name before Commit, where the file
// system supports O_TMPFILE: ext4 then changes the directory once and not three times.
func (d *Dir) createBatched(name string, replaces bool) (*File, error) {
	if replaces {
		return d.Create(name, 0o600)
	}
	fd, err := unix.Openat(d.fd(), ".", os.O_RDWR|unix.O_TMPFILE|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return d.Create(name, 0o600)
	}
	return &File{os.NewFile(uintptr(fd), d.path(name)), d, name, ""}, nil
}

// noteDisk records which file system f is on.
func (b *Batch) noteDisk(f *File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || b.disks[st.Dev] != nil {
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

// Commit gives every file its name and closes it. The errors are those of the files, in the order of Add; nil is
// success. Older content is replaced only after the new content was written to the disk. A file without older content
// may be empty after a power failure that comes before Sync.
func (b *Batch) Commit() []error {
	errs := make([]error, len(b.files))
	for i, f := range b.files {
		errs[i] = f.writeBack(unix.SYNC_FILE_RANGE_WRITE)
	}
	for i, f := range b.files {
		if errs[i] == nil {
			errs[i] = f.writeBack(unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER)
		}
		if errs[i] == nil {
			errs[i] = f.place()
		}
		if errs[i] != nil {
			errs[i] = errors.Join(errs[i], f.Drop())
		} else {
			errs[i] = f.Close()
		}
	}
	b.files = nil
	return errs
}

// writeBack writes the content to the disk, where it replaces other content.
func (f batched) writeBack(flags int) error {
	if !f.replaces {
		return nil
	}
	if err := unix.SyncFileRange(int(f.Fd()), 0, 0, flags); err != nil {
		return fmt.Errorf("writing %s to disk: %w", f.Name(), err)
	}
	return nil
}

// place gives f its name, without asking the disk.
func (f *File) place() error {
	if f.now == "" {
		opened := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
		err := unix.Linkat(unix.AT_FDCWD, opened, f.dir.fd(), f.name, unix.AT_SYMLINK_FOLLOW)
		if err != nil {
			return &os.LinkError{Op: "link", Old: opened, New: f.dir.path(f.name), Err: err}
		}
		f.now = f.name
		return nil
	}
	if err := f.dir.checkName(f.name, nil); err != nil {
		return err
	}
	return f.dir.rename(f.now, f.name)
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
	for _, f := range b.files {
		err = errors.Join(err, f.Drop())
	}
	for _, d := range b.disks {
		err = errors.Join(err, d.Close())
	}
	*b = Batch{}
	return err
}
