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

// Open returns the directory of a path. It calls open if the directory is not open yet.
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

// Close closes the directories. l can be reused.
func (l Dirs) Close() (err error) {
	for path, d := range l {
		err = errors.Join(err, d.Close())
		delete(l, path)
	}
	return err
}

// Batch replaces many small files with few system calls each. Sync flushes the disk once for all of them. A Batch
// belongs to one goroutine.
type Batch struct {
	files []stagedFile
	disks map[uint64]*os.File // one directory of each file system written to, by device number
}

// stagedFile is a file that waits for Commit.
type stagedFile struct {
	fd       int
	dir      *Dir
	name     string // final name
	staged   *File  // fd under its temporary name; nil: fd has no name yet
	replaces bool   // the name may have older content

	asked, made fs.FileMode // requested permissions, and the actual ones after umask and ACL
}

// Add stages content for name in d, with its permissions and modification time. d must stay open until Commit or Close.
// With replaces, name may have older content. Without it, Commit fails with fs.ErrExist for this file if name exists.
func (b *Batch) Add(d *Dir, name string, replaces bool, mode fs.FileMode, modified time.Time,
	content []byte) error {
	f, err := d.createBatched(name, mode.Perm(), replaces)
	if err != nil {
		return err
	}
	if err = f.write(content); err == nil {
		err = b.setAttr(&f, mode.Perm(), modified)
	}
	if err != nil {
		err = &fs.PathError{Op: "write", Path: d.path(name), Err: err}
		return errors.Join(err, f.drop())
	}
	b.files = append(b.files, f)
	return nil
}

// createBatched creates an empty file for name. One that replaces nothing has no name before Commit, if the file system
// supports O_TMPFILE: ext4 then changes the directory once instead of three times.
func (d *Dir) createBatched(name string, mode fs.FileMode, replaces bool) (stagedFile, error) {
	if !replaces {
		const flags = unix.O_RDWR | unix.O_TMPFILE | unix.O_CLOEXEC
		if fd, err := unix.Openat(d.fd(), ".", flags, uint32(mode)); err == nil {
			return stagedFile{fd: fd, dir: d, name: name, asked: mode}, nil
		}
	}
	const private = 0o600
	f, err := d.Create(name, private)
	if err != nil {
		return stagedFile{}, err
	}
	return stagedFile{int(f.Fd()), d, name, f, replaces, private, 0}, nil
}

func (f *stagedFile) write(content []byte) error {
	for len(content) > 0 {
		n, err := unix.Write(f.fd, content)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		content = content[max(n, 0):]
	}
	return nil
}

// setAttr sets the permissions of f, unless it was created with them, and its modification time.
func (b *Batch) setAttr(f *stagedFile, mode fs.FileMode, modified time.Time) error {
	err := b.look(f)
	if err == nil && f.made != mode {
		err = unix.Fchmod(f.fd, uint32(mode))
	}
	if err != nil {
		return err
	}
	return setTime(f.fd, modified)
}

// look sets f.made, and records the file system of f. Consecutive files with the same directory and requested
// permissions need one fstat only.
func (b *Batch) look(f *stagedFile) error {
	if n := len(b.files); n > 0 && b.files[n-1].dir == f.dir && b.files[n-1].asked == f.asked {
		f.made = b.files[n-1].made
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(f.fd, &st); err != nil {
		return err
	}
	f.made = fs.FileMode(st.Mode & 0o777)
	if b.disks[st.Dev] != nil {
		return nil
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

// close closes f. A file that has no name is then deleted.
func (f *stagedFile) close() error {
	if f.staged != nil {
		return f.staged.Close()
	}
	return unix.Close(f.fd)
}

// drop closes and removes f, which must not have been committed.
func (f *stagedFile) drop() error {
	if f.staged != nil {
		return f.staged.Drop()
	}
	return unix.Close(f.fd)
}

// Commit gives the files their names and closes them. A file that fails is removed. It returns the errors of the files,
// in the order of Add; nil means success. Older content is replaced only after the new content was written to disk. A
// file without older content may be empty after a power failure before Sync.
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

// writeBack calls sync_file_range with flags if f replaces older content.
func (f *stagedFile) writeBack(flags int) error {
	if !f.replaces {
		return nil
	}
	if err := unix.SyncFileRange(f.fd, 0, 0, flags); err != nil {
		return fmt.Errorf("writing %s to disk: %w", f.dir.path(f.name), err)
	}
	return nil
}

// place gives f its final name, without flushing the disk.
func (f *stagedFile) place() error {
	if f.staged != nil {
		if err := f.dir.checkName(f.name); err != nil {
			return err
		}
		if f.replaces {
			return f.dir.rename(f.staged.now, f.name)
		}
		return f.dir.renameNew(f.staged.now, f.name)
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

// Sync makes every committed file durable, and all other dirty data of the same file systems.
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

// Close drops uncommitted files, and forgets the file systems.
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
