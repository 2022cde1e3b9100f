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

// saveFile implements check.save for settings in files.
func saveFile(files ...string) (settings, error) {
	s := settings{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		s[f] = strings.TrimSpace(string(b))
	}
	return s, nil
}

// restoreFiles returns check.undo for settings in files. It rejects saved files that the check's fix does not write.
func restoreFiles(mine func(*env) []string) func(*env, settings) error {
	return func(e *env, s settings) error {
		files := mine(e)
		for f := range s {
			if !slices.Contains(files, f) {
				return fmt.Errorf("%q is not a file that this check changes", f)
			}
		}
		for f, v := range s {
			if err := writeSetting(f, v); err != nil {
				return err
			}
		}
		return nil
	}
}
