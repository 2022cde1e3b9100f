package preflight

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"xwarp/engine/daemon/config"
)

// UnitUser is the user of the packaged systemd unit.
const UnitUser = "xwarp"

// stateDirectory is the directory where the unit lets the daemon write.
const stateDirectory = "/var/lib/xwarp"

// User is the user that the daemon runs as. The zero User is that of this process.
type User struct {
	name     string
	uid, gid int
}

// LookupUser finds a user whose permissions this process can check; only root can check those of other users. It
// returns the zero User if this process is not root, or the unit's user does not exist.
func LookupUser(name string) (User, error) {
	u, err := user.Lookup(name)
	if _, none := errors.AsType[user.UnknownUserError](err); none && name == UnitUser {
		return User{}, nil
	}
	if err != nil {
		return User{}, err
	}
	if os.Geteuid() != 0 {
		return User{}, nil
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	return User{name, uid, gid}, errors.Join(err1, err2)
}

// do runs f on a new thread with the user's file permissions.
func (u User) do(f func() error) error {
	if u.name == "" {
		return f()
	}
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		group := uint32(u.gid)
		_, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, 1, uintptr(unsafe.Pointer(&group)), 0)
		if e != 0 {
			result <- e
			return
		}
		unix.SetfsgidRetGid(u.gid)
		unix.SetfsuidRetUid(u.uid) // also drops CAP_DAC_OVERRIDE
		result <- f()
	}()
	return <-result
}

// may returns an error if the user lacks the access mode to a path, as access(2) checks it.
func (u User) may(path string, mode uint32) error {
	return u.do(func() error {
		err := unix.Faccessat(unix.AT_FDCWD, path, mode, unix.AT_EACCESS)
		if err == nil {
			return nil
		}
		who := ""
		if u.name != "" {
			who = " for user " + u.name
		}
		return fmt.Errorf("%s%s: %w", path, who, err)
	})
}

// checkContent checks the directory or file of an export.
func (u User) checkContent(e *config.Export) error {
	switch {
	case e.Serve == config.ServeDirectory:
		return u.checkDirectory(e.Path, e.Access != config.AccessRead)
	case e.Memory == config.MemoryFile:
		return u.checkFile(e)
	case e.Memory == config.MemoryHugePages:
		return checkHugePages(int64(e.Size))
	}
	return nil
}

func (u User) checkDirectory(path string, write bool) error {
	if u.name == UnitUser && filepath.Clean(path) == stateDirectory {
		return nil // systemd creates it for the unit
	}
	mode := uint32(unix.R_OK | unix.X_OK)
	if write {
		mode |= unix.W_OK
	}
	switch st, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w (install -d -o %s -g %s %s)", err, UnitUser, UnitUser, path)
	case err == nil && !st.IsDir():
		return fmt.Errorf("%s is not a directory", path)
	}
	if err := u.may(path, mode); err != nil {
		// The error does not suggest chown: path may be a directory of the system or of a user, such as /root.
		return fmt.Errorf("%w (export a directory of the daemon: install -d -o %s -g %s %s/NAME)", err,
			UnitUser, UnitUser, stateDirectory)
	}
	return u.checkUnit(path, write)
}

// checkFile checks the file of an export, or its directory if the daemon has to create the file.
func (u User) checkFile(e *config.Export) error {
	st, err := os.Stat(e.Path)
	if errors.Is(err, fs.ErrNotExist) {
		if e.Size == 0 {
			return fmt.Errorf("%w, and size is not set: set it to create the file", err)
		}
		return u.checkDirectory(filepath.Dir(e.Path), true)
	}
	switch {
	case err != nil:
		return err
	case !st.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file", e.Path)
	case st.Size() == 0 && e.Size == 0:
		return fmt.Errorf("%s is empty: set size", e.Path)
	case e.Serve == config.ServeMemory && e.Size != 0 && int64(e.Size) < st.Size():
		return fmt.Errorf("%s has %d bytes, and size = %q would truncate it: use a larger size, or 0",
			e.Path, st.Size(), e.Size)
	}
	if err := u.may(e.Path, unix.R_OK|unix.W_OK); err != nil {
		return fmt.Errorf("%w (chown %s %s)", err, UnitUser, e.Path)
	}
	return u.checkUnit(e.Path, true)
}

// checkUnit returns an error if the unit hides a path from the daemon, or if write is set and the unit denies writes
// there.
func (u User) checkUnit(path string, write bool) error {
	if u.name != UnitUser || within(path, stateDirectory) {
		return nil
	}
	out, err := exec.Command("systemctl", "show", "xwarpd", "-p",
		"User,ReadWritePaths,BindPaths").Output()
	if err != nil || !strings.Contains(string(out), "User="+UnitUser+"\n") {
		return nil // no systemd, or another unit
	}
	_, bound, _ := strings.Cut(string(out), "BindPaths=")
	_, writable, _ := strings.Cut(string(out), "ReadWritePaths=")
	bound, _, _ = strings.Cut(bound, "\n")
	writable, _, _ = strings.Cut(writable, "\n")
	if anyWithin(path, bound) {
		return nil
	}
	if anyWithin(path, "/home /root /run/user /tmp /var/tmp") {
		return fmt.Errorf("the unit hides %s from xwarpd: systemctl edit xwarpd, then [Service] BindPaths=%s", path, path)
	}
	if write && !anyWithin(path, writable) {
		return fmt.Errorf("the unit allows writes below %s only: systemctl edit xwarpd, then [Service] ReadWritePaths=%s",
			stateDirectory, path)
	}
	return nil
}

// anyWithin reports whether path is one of the directories of a list, or below one.
func anyWithin(path, list string) bool {
	for dir := range strings.FieldsSeq(list) {
		dir, _, _ = strings.Cut(strings.TrimLeft(dir, "-+"), ":")
		if within(path, dir) {
			return true
		}
	}
	return false
}

func within(path, dir string) bool {
	rest, ok := strings.CutPrefix(filepath.Clean(path), strings.TrimSuffix(dir, "/"))
	return ok && (rest == "" || rest[0] == '/')
}
