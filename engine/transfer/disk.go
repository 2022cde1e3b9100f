package transfer

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"xwarp/engine/host/staging"
)

// FileConfig configures a region backed by a file.
type FileConfig struct {
	Path string // created if it does not exist
	// Size is the size of the region in bytes. Zero means that of the file.
	Size int64
	// InPlace makes puts overwrite the file through a journal, instead of replacing it by another one: for programs
	// that have the file open or mapped. A file with several links, of another user, with an ACL, or mounted is always
	// overwritten.
	InPlace bool
	Log     *slog.Logger // nil: no log
}

// disk is the file of a region.
type disk struct {
	dir  *staging.Dir
	name string
	mode fs.FileMode
	// of a file that is overwritten: the file, and the content that maps it
	file   *os.File
	origin *content

	storing sync.Mutex // held while a content gets the name
}

// OpenRegion opens a file. It removes a staged file of a dead process, and applies its journal. No other process may
// truncate the file in the meantime.
func OpenRegion(cfg FileConfig) (*Region, error) {
	path, err := filepath.EvalSymlinks(cfg.Path) // a symbolic link is kept
	if errors.Is(err, fs.ErrNotExist) {
		path, err = cfg.Path, nil
	}
	if err != nil {
		return nil, err
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	d := &disk{name: filepath.Base(path)}
	if d.dir, err = staging.OpenDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	f, err := d.dir.Open(d.name, 0o666)
	if err == nil {
		var r *Region
		if r, err = d.make(f, &cfg); err == nil {
			return r, nil
		}
		err = errors.Join(err, f.Close())
	}
	return nil, errors.Join(fmt.Errorf("%s: %w", cfg.Path, err), d.close())
}

func (d *disk) make(f *os.File, cfg *FileConfig) (*Region, error) {
	if err := d.prepare(f, cfg); err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	d.mode = st.Mode().Perm()
	length, n := st.Size(), cfg.Size
	if n == 0 {
		n = length
	}
	switch {
	case n == 0:
		return nil, errors.New("is empty: set --size (size of the export)")
	case n < length:
		return nil, fmt.Errorf("has %d bytes and does not fit a region of %d: use a larger --size, or none", length, n)
	case n > MaxRegion:
		return nil, fmt.Errorf("region of %d bytes exceeds %d", n, int64(MaxRegion))
	}
	mem, err := mapFile(f, length, n, unix.PROT_READ)
	if err != nil {
		return nil, err
	}
	c := newContent(mem, length, f)
	if sum, noted := staging.Sum(f); noted {
		c.know(sum)
		c.filled = true
	}
	c.filled = c.filled || length > 0
	r := makeRegion(n, c)
	r.disk = d
	if d.file != nil {
		d.origin = c
	}
	return r, nil
}

// prepare cleans up after a dead process, and determines how puts reach the file.
func (d *disk) prepare(f *os.File, cfg *FileConfig) error {
	found, err := d.dir.Recover(d.name, f)
	if err != nil {
		return err
	}
	if found {
		cfg.Log.Warn("completed an interrupted put from its journal",
			"path", cfg.Path)
	}
	n, err := d.dir.Clean(d.name)
	if err != nil {
		return fmt.Errorf("removing staged data: %w", err)
	}
	if n > 0 {
		cfg.Log.Warn("removed interrupted puts", "path", cfg.Path, "files", n)
	}
	why, err := staging.InPlace(f)
	if err != nil {
		return err
	}
	if cfg.InPlace || why != "" {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0) // with the lock
		if err != nil {
			return err
		}
		d.file = os.NewFile(uintptr(fd), f.Name())
	}
	probe, err := d.dir.Create(d.name, 0o600)
	if err != nil {
		return fmt.Errorf("puts are staged in its directory: %w", err)
	}
	return probe.Drop()
}

func (d *disk) close() error {
	err := d.dir.Close()
	if d.file != nil {
		err = errors.Join(err, d.file.Close())
	}
	return err
}

// create creates a staged file with n allocated bytes.
func (d *disk) create(n int64) (*staging.File, error) {
	f, err := d.dir.Create(d.name, 0o600)
	if err != nil {
		return nil, err
	}
	// with all blocks allocated, no Write fails because the disk is full
	if err = f.Allocate(n); err == nil {
		err = f.Chmod(d.mode)
	}
	if err != nil {
		return nil, errors.Join(err, f.Drop())
	}
	return f, nil
}

// store durably makes c, which was st, the content of the region and of its file.
func (d *disk) store(r *Region, st *stage, c *content, sum Sum) error {
	d.storing.Lock()
	defer d.storing.Unlock()
	err := r.Err()
	if err == nil {
		err = staging.Note(c.file, sum)
	}
	if err == nil && d.file != nil {
		err = st.file.Journal(d.file)
	} else if err == nil {
		err = st.file.Commit(r.now.file) // storing guards now too
	}
	if err != nil && !errors.Is(err, staging.ErrUnsure) {
		return errors.Join(fmt.Errorf("the content is unchanged: %w", err), st.drop())
	}
	if err != nil { // it is unknown which one a restart would find
		return errors.Join(r.lose(err), r.replace(st, c))
	}
	if err := r.replace(st, c); err != nil || d.file == nil {
		return err
	}
	if d.origin != nil { // readers of the file itself must not get a mixture
		d.origin.revoke(errReplaced)
		<-d.origin.freed
		d.origin = nil
	}
	if err := st.file.Apply(d.file); err != nil {
		return r.lose(err)
	}
	return nil
}
