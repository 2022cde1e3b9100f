package transfer

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"

	"xwarp/engine/host/hostfile"
)

// Output is a file that has its name only once it is whole; until then an older file of that name stays. What is no
// regular file, such as a pipe or a device, is written directly.
type Output struct {
	*bufio.Writer
	file *os.File
	name string // that Commit gives; empty when file has it
}

// CreateOutput begins the file called name, in name's directory.
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
		return newOutput(f, ""), nil
	case err == nil:
		// A symbolic link stays one: the file that it leads to is replaced.
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
	part := fmt.Sprintf("%s.%08x.part", name, rand.Uint32())
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return nil, err
	}
	return newOutput(f, name), nil
}

func newOutput(f *os.File, name string) *Output {
	return &Output{Writer: bufio.NewWriterSize(f, 1<<20), file: f, name: name}
}

// Commit ends the file and gives it its name.
func (o *Output) Commit() error {
	err := o.Flush()
	if err == nil && o.name != "" {
		err = o.file.Sync()
	}
	err = errors.Join(err, o.file.Close())
	if o.name == "" {
		return err
	}
	if err == nil {
		err = os.Rename(o.file.Name(), o.name)
	}
	if err != nil {
		os.Remove(o.file.Name())
	}
	return err
}

// Abort takes the file away.
func (o *Output) Abort() {
	o.file.Close()
	if o.name != "" {
		os.Remove(o.file.Name())
	}
}
