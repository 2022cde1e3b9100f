package staging

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// noteName is the extended attribute that describes a file's content: getfattr -n user.xwarp FILE.
const noteName = "user.xwarp"

// note is its format. Another length or time means that the file was modified since.
const note = "sha256=%x length=%d mtime=%d"

// Note records in f that its SHA-256 is sum, until f is modified. It does nothing if the file system has no extended
// attributes.
func Note(f *os.File, sum [32]byte) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	text := fmt.Sprintf(note, sum, st.Size(), st.ModTime().UnixNano())
	err = unix.Fsetxattr(int(f.Fd()), noteName, []byte(text), 0)
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("%s: extended attribute %s: %w", f.Name(), noteName, err)
	}
	return nil
}

// Sum returns the SHA-256 that Note recorded. ok is false if there is none, or it is of other content.
func Sum(f *os.File) (sum [32]byte, ok bool) {
	b := make([]byte, 256)
	n, err := unix.Fgetxattr(int(f.Fd()), noteName, b)
	if err != nil {
		return sum, false
	}
	st, err := f.Stat()
	if err != nil {
		return sum, false
	}
	var digits []byte
	var length, mtime int64
	_, err = fmt.Sscanf(string(b[:n]), note, &digits, &length, &mtime)
	if err != nil || len(digits) != len(sum) {
		return sum, false
	}
	return [32]byte(digits), length == st.Size() && mtime == st.ModTime().UnixNano()
}
