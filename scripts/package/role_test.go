package install

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// roleEnv is the environment variable that makes the test binary run one of roles with its arguments, instead of tests.
const roleEnv = "XWARP_INSTALL_ROLE"

var roles = map[string]func(args []string) error{"machine": machineRole, "program": programRole}

func TestMain(m *testing.M) {
	role := roles[os.Getenv(roleEnv)]
	if role == nil {
		os.Exit(runTests(m))
	}
	if err := role(os.Args[1:]); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// bootTarget is the unit that a machine boots: only the basic system. Services start the other units that they need.
const bootTarget = "[Unit]\nDescription=Test\nRequires=sysinit.target\nAfter=sysinit.target\n"

// machineRole boots a machine in the namespaces that this process was started in. args[0] is an empty directory for its
// use. The machine has this computer's files, overlaid by a file system in memory, and runs this computer's systemd:
// this process becomes it. The machine ends with this process and leaves nothing behind. From inside, the kernel's
// settings and devices cannot be changed.
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
	const readOnly = unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY
	for _, m := range []struct {
		source, target, kind string
		flags                uintptr
		data                 string
	}{
		{"machine", "", "overlay", 0, fmt.Sprintf("lowerdir=/,upperdir=%s/upper,workdir=%s/work",
			dir, dir)},
		{"proc", "proc", "proc", 0, ""},
		{root + "/proc/sys", "proc/sys", "", unix.MS_BIND, ""},
		{"", "proc/sys", "", readOnly, ""},
		{"sysfs", "sys", "sysfs", unix.MS_RDONLY, ""},
		{"machine", "sys/fs/cgroup", "tmpfs", 0, "mode=755"},
		{"cgroup", "sys/fs/cgroup", "cgroup2", 0, ""},
		{"machine", "dev", "tmpfs", 0, "mode=755"},
		{"machine", "run", "tmpfs", 0, "mode=755"},
		{"machine", "tmp", "tmpfs", 0, "mode=1777"},
		{"machine", "var/log", "tmpfs", 0, "mode=755"},
	} {
		if err := unix.Mount(m.source, filepath.Join(root, m.target), m.kind, m.flags,
			m.data); err != nil {
			return fmt.Errorf("mounting %s on /%s: %w", m.kind, m.target, err)
		}
	}
	if err := errors.Join(devices(root), prepare(root)); err != nil {
		return err
	}
	if err := errors.Join(os.Chdir(root), unix.PivotRoot(".", "."),
		unix.Unmount(".", unix.MNT_DETACH), os.Chdir("/")); err != nil {
		return fmt.Errorf("entering the machine: %w", err)
	}
	for _, c := range []uintptr{unix.CAP_SYS_MODULE, unix.CAP_SYS_RAWIO, unix.CAP_SYS_TIME} {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			return fmt.Errorf("bounding set: %w", err)
		}
	}
	fmt.Println("ready")
	const systemd = "/lib/systemd/systemd"
	return unix.Exec(systemd, []string{systemd, "--unit=xwarp-test.target"},
		[]string{"container=other", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"})
}

// devices makes the device nodes of a machine below root.
func devices(root string) error {
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		at := filepath.Join(root, "dev", name)
		if err := os.WriteFile(at, nil, 0o666); err != nil {
			return err
		}
		if err := unix.Mount("/dev/"+name, at, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("binding /dev/%s: %w", name, err)
		}
	}
	pts := filepath.Join(root, "dev/pts")
	return errors.Join(os.Symlink("/proc/self/fd", filepath.Join(root, "dev/fd")),
		os.Symlink("pts/ptmx", filepath.Join(root, "dev/ptmx")),
		os.Mkdir(filepath.Join(root, "dev/shm"), 0o1777), os.Mkdir(pts, 0o755),
		unix.Mount("devpts", pts, "devpts", 0, "newinstance,ptmxmode=0666"))
}

// prepare changes the files of a machine below root. It removes the mounts of this computer, masks services that would
// wait for a network, and adds the unit that boots and a machine ID.
func prepare(root string) error {
	os.Remove(filepath.Join(root, "etc/fstab"))
	os.Remove(filepath.Join(root, "etc/crypttab"))
	units := filepath.Join(root, "etc/systemd/system")
	for _, waiting := range []string{"systemd-networkd-wait-online.service",
		"NetworkManager-wait-online.service", "networking.service"} {
		os.Remove(filepath.Join(units, waiting))
		if err := os.Symlink("/dev/null", filepath.Join(units, waiting)); err != nil {
			return err
		}
	}
	return errors.Join(
		os.WriteFile(filepath.Join(units, "xwarp-test.target"), []byte(bootTarget), 0o644),
		os.WriteFile(filepath.Join(root, "etc/machine-id"),
			[]byte("0123456789abcdef0123456789abcdef\n"), 0o444))
}
