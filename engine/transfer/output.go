package transfer

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"xwarp/engine/host/hostfile"
	"xwarp/engine/host/staging"
)

// Output is a file that gets its name when it is complete. Until then an older file of that name stays. A file that is
// not regular, such as a pipe or a device, is written directly.
type Output struct {
	*bufio.Writer
	file   *os.File
	dir    *staging.Dir // nil if the file is written directly
	staged *staging.File
}

// CreateOutput creates the file called name, in name's directory.
func CreateOutput(name string) (*Output, error) {
	if _, err := hostfile.Follow(name); err != nil {
		return nil, err
	}
	st, err := os.Stat(name)
	switch {
	case err == nil && !st.Mode().IsRegular():
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return nil, err
		}
		return newOutput(&Output{file: f}), nil
	case err == nil:
		// a symbolic link is kept: its target is replaced
		if name, err = filepath.EvalSymlinks(name); err != nil {
			return nil, err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	mode := os.FileMode(0o666)
	if st != nil {
		mode = st.Mode().Perm()
	}
	dir, err := staging.OpenDir(filepath.Dir(name))
	if err != nil {
		return nil, err
	}
	f, err := dir.Create(filepath.Base(name), mode)
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return newOutput(&Output{file: f.File, dir: dir, staged: f}), nil
}

func newOutput(o *Output) *Output {
	o.Writer = bufio.NewWriterSize(o.file, 1<<20)
	return o
}

// Commit completes the file and durably gives it its name.
func (o *Output) Commit() error {
	err := o.Flush()
	if o.staged == nil {
		return errors.Join(err, o.file.Close())
	}
	if err == nil {
		err = o.staged.Commit(nil)
	}
	if err != nil && !errors.Is(err, staging.ErrUnsure) {
		o.Abort()
		return err
	}
	return errors.Join(err, o.file.Close(), o.dir.Close())
}

// Abort removes the file.
func (o *Output) Abort() {
	if o.staged == nil {
		o.file.Close()
		return
	}
	o.staged.Drop()
	o.dir.Close()
}
