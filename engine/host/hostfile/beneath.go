package hostfile

import (
	"os"

	"golang.org/x/sys/unix"
)

// Beneath opens the file that path leads to below root, and nothing outside of root, also while somebody renames
// directories and links. flags are those of open(2); O_PATH is not supported. Neither a pipe nor a terminal makes it
// wait.
//
// os.Root opens one name of the path at a time with openat(2). openat2(2) would do it in one call, but systemd refuses
// that call to a unit with RestrictSUIDSGID=yes.
func Beneath(root *os.Root, path string, flags int) (*os.File, error) {
	return root.OpenFile(path, flags|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
}
