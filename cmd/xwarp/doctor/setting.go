package doctor

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func readNumber(file string) (int, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}

// writeSetting writes a kernel setting to an existing file in /sys or /proc. It does not follow a link at the end of
// the path.
func writeSetting(file, value string) (err error) {
	f, err := os.OpenFile(file, os.O_WRONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil {
		return err
	}
	if fs.Type != unix.SYSFS_MAGIC && fs.Type != unix.PROC_SUPER_MAGIC {
		return fmt.Errorf("%s is not a kernel setting", file)
	}
	_, err = f.WriteString(value + "\n")
	return err
}

// readSetting implements check.get for settings in files. The keys are their names.
func readSetting(_ *env, file string) (string, error) {
	b, err := os.ReadFile(file)
	return strings.TrimSpace(string(b)), err
}

// putIn returns check.put for settings in these files. It rejects other files, which a saved state may name.
func putIn(files ...string) func(*env, string, string) error {
	return func(_ *env, file, value string) error {
		if !slices.Contains(files, file) {
			return fmt.Errorf("%q is not a file that this check changes", file)
		}
		return writeSetting(file, value)
	}
}

// putNumber returns check.put for a numeric setting of the interface, which set changes.
func putNumber(set func(name string, n uint32) error) func(*env, string, string) error {
	return func(e *env, _, value string) error {
		n, err := strconv.ParseUint(value, 10, 32)
		if err != nil {
			return err
		}
		return set(e.name(), uint32(n))
	}
}
