package hostfile

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Create opens a file for writing and truncates it, like os.Create. It fails if name is a symbolic link or a regular
// file of another user, except root: the link could redirect root's writes, and that user could read the file. Pipes
// and devices may belong to any user. A new file is readable by its owner only, because captures contain users' data.
func Create(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil || !errors.Is(err, unix.EEXIST) {
		return f, err
	}
	flags := os.O_WRONLY | unix.O_NOFOLLOW
	switch link, err := Follow(name); {
	case err != nil:
		return nil, err
	case link:
		flags = os.O_WRONLY
	}
	if f, err = os.OpenFile(name, flags, 0); err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(int(f.Fd()), &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
		if err = foreign(&st); err == nil {
			err = f.Truncate(0)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, errors.Join(err, f.Close()))
	}
	return f, nil
}

// Follow reports whether name is a symbolic link. It fails if the link belongs to neither this user nor root.
func Follow(name string) (link bool, err error) {
	var st unix.Stat_t
	if unix.Lstat(name, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return false, nil
	}
	if err := foreign(&st); err != nil {
		return true, fmt.Errorf("%s is a symbolic link, and %w", name, err)
	}
	return true, nil
}

// foreign returns an error unless a file belongs to this user or root.
func foreign(st *unix.Stat_t) error {
	if st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("owned by user %d: remove it, or use another file", st.Uid)
	}
	return nil
}
