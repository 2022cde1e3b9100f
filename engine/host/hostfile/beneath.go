package hostfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// tries is how often Beneath begins again while somebody renames directories on its way: as often as that, it
// is no coincidence.
const tries = 64

// ErrEscape is wrapped when a path leads out of its directory, by "..", a symbolic link or an absolute path.
var ErrEscape = errors.New("it leads out of the directory")

// Beneath opens what path leads to below root, as os.OpenFile does, and nothing that is elsewhere, whoever
// renames and links meanwhile: the kernel looks (openat2, RESOLVE_BENEATH). Nothing keeps it waiting: neither
// a pipe nor a terminal.
func Beneath(root *os.File, path string, flags int) (*os.File, error) {
	if flags&unix.O_PATH == 0 { // which opens nothing
		flags |= unix.O_NONBLOCK | unix.O_NOCTTY
	}
	how := unix.OpenHow{
		Flags:   uint64(flags | unix.O_CLOEXEC),
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	}
	fd, err := unix.Openat2(int(root.Fd()), path, &how)
	for i := 0; i < tries && (errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR)); i++ {
		fd, err = unix.Openat2(int(root.Fd()), path, &how)
	}
	switch {
	case errors.Is(err, unix.EXDEV):
		return nil, fmt.Errorf("%s: %w", path, ErrEscape)
	case err != nil:
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), filepath.Join(root.Name(), path)), nil
}
