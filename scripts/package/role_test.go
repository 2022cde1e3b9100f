package install

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// roleEnv makes the test binary play another process; the arguments follow.
const roleEnv = "XWARP_INSTALL_ROLE"

var roles = map[string]func(args []string) error{"machine": machineRole, "unit": unitRole,
	"program": programRole}

func TestMain(m *testing.M) {
	role := roles[os.Getenv(roleEnv)]
	if role == nil {
		os.Exit(m.Run())
	}
	if err := role(os.Args[1:]); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// machineRole makes a machine of this one's files with a memory file system above them, in the mount
// namespace that it was given and with a directory for its use; it ends with its standard input, and nothing
// stays.
func machineRole(args []string) error {
	dir := args[0]
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("machine", dir, "tmpfs", 0, ""); err != nil {
		return err
	}
	root := filepath.Join(dir, "root")
	for _, d := range []string{"upper", "work", "root"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	for _, m := range []struct {
		source, target, kind string
		flags                uintptr
		data                 string
	}{
		{"machine", "", "overlay", 0, fmt.Sprintf("lowerdir=/,upperdir=%s/upper,workdir=%s/work",
			dir, dir)},
		{"proc", "proc", "proc", 0, ""},
		{"sysfs", "sys", "sysfs", 0, ""},
		{"/dev", "dev", "", unix.MS_BIND | unix.MS_REC, ""},
		{"machine", "run", "tmpfs", 0, "mode=755"},
		{"machine", "tmp", "tmpfs", 0, "mode=1777"},
	} {
		if err := unix.Mount(m.source, filepath.Join(root, m.target), m.kind, m.flags,
			m.data); err != nil {
			return fmt.Errorf("mounting %s on /%s: %w", m.kind, m.target, err)
		}
	}
	if err := errors.Join(unix.Chroot(root), os.Chdir("/")); err != nil {
		return err
	}
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
	return nil
}

// unitRole becomes what the installed unit starts, with the rights and the filters that systemd would give
// it. Its argument is the machine's root in the machine's mount namespace, which is file descriptor 3.
func unitRole(args []string) error {
	runtime.LockOSThread()
	if err := enter(3, args[0]); err != nil {
		return fmt.Errorf("the machine's mount namespace: %w", err)
	}
	u, err := readUnit("/usr/lib/systemd/system/xwarpd.service")
	if err != nil {
		return err
	}
	who, err := user.Lookup(u.one("User"))
	if err != nil {
		return err
	}
	uid, _ := strconv.Atoi(who.Uid)
	gid, _ := strconv.Atoi(who.Gid)
	dirs := []string{"/var/lib/" + u.one("StateDirectory")}
	for d := range strings.FieldsSeq(u.one("RuntimeDirectory")) {
		dirs = append(dirs, "/run/"+d)
	}
	for _, d := range dirs {
		if err := errors.Join(os.MkdirAll(d, 0o755), os.Chown(d, uid, gid)); err != nil {
			return err
		}
	}
	// ProtectProc=invisible, ProcSubset=pid
	if err := unix.Mount("proc", "/proc", "proc", 0, "subset=pid,hidepid=invisible"); err != nil {
		return fmt.Errorf("/proc: %w", err)
	}
	bound, err := u.capabilities("CapabilityBoundingSet")
	if err != nil {
		return err
	}
	if err := u.drop(uid, gid, bound); err != nil {
		return err
	}
	command := strings.Fields(u.one("ExecStart"))
	environ := []string{"NOTIFY_SOCKET=" + os.Getenv("NOTIFY_SOCKET"), "PATH=/usr/bin:/bin"}
	unix.Umask(0o077)
	if err := u.confine(); err != nil {
		return err
	}
	return fmt.Errorf("%v: %w", command, unix.Exec(command[0], command, environ))
}

// enter gives the calling thread a mount namespace of its own, a copy of the one behind fd, and root as its
// root directory.
func enter(fd int, root string) error {
	return errors.Join(unix.Unshare(unix.CLONE_FS), unix.Setns(fd, unix.CLONE_NEWNS),
		unix.Chroot(root), unix.Chdir("/"),
		unix.Unshare(unix.CLONE_NEWNS), unix.Close(fd))
}

// drop makes the calling thread, and no other, the unit's user with the unit's capabilities.
func (u unit) drop(uid, gid int, caps []uintptr) error {
	if u.one("LimitMEMLOCK") == "infinity" {
		unlimited := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
		if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unlimited); errors.Is(err, unix.EPERM) {
			caps = append(caps, unix.CAP_IPC_LOCK) // a container's root: the one thing that does the same
		} else if err != nil {
			return fmt.Errorf("locked memory: %w", err)
		}
	}
	var set uint64
	for _, c := range caps {
		set |= 1 << c
	}
	for c := range uintptr(unix.CAP_LAST_CAP + 1) {
		if set&(1<<c) == 0 {
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
				return fmt.Errorf("bounding set: %w", err)
			}
		}
	}
	if err := unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("keeping capabilities: %w", err)
	}
	groups := [1]uint32{uint32(gid)}
	for _, call := range [][4]uintptr{
		{unix.SYS_SETGROUPS, 1, uintptr(unsafe.Pointer(&groups[0]))},
		{unix.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid)},
		{unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)},
	} {
		if _, _, e := syscall.RawSyscall(call[0], call[1], call[2], call[3]); e != 0 {
			return fmt.Errorf("user and group: %w", e)
		}
	}
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	low, high := uint32(set), uint32(set>>32)
	data := [2]unix.CapUserData{{Effective: low, Permitted: low, Inheritable: low},
		{Effective: high, Permitted: high, Inheritable: high}}
	if err := unix.Capset(&h, &data[0]); err != nil {
		return fmt.Errorf("capset: %w", err)
	}
	for _, c := range caps {
		if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, c, 0, 0); err != nil {
			return fmt.Errorf("ambient capabilities: %w", err)
		}
	}
	return nil
}
