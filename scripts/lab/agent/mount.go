package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

type mount struct {
	source, target, fstype string
	flags                  uintptr
	data                   string
}

// early are the mounts of the initial file system, late those of the real root.
var (
	early = []mount{
		{"proc", "/proc", "proc", 0, ""},
		{"sysfs", "/sys", "sysfs", 0, ""},
		{"devtmpfs", "/dev", "devtmpfs", 0, ""},
	}
	late = []mount{
		{"devpts", "/dev/pts", "devpts", 0, ""},
		{"tmpfs", "/dev/shm", "tmpfs", 0, ""},
		{"tmpfs", "/run", "tmpfs", 0, ""},
		{"tmpfs", "/tmp", "tmpfs", 0, ""},
	}
)

func mountAll(list []mount) error {
	for _, m := range list {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.source, m.target, m.fstype, m.flags, m.data); err != nil {
			return fmt.Errorf("mount %s on %s: %w", m.fstype, m.target, err)
		}
	}
	return nil
}

// loadModules loads the kernel modules whose paths are in the file list, one per line, dependencies first.
func loadModules(list string) error {
	text, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	for _, path := range strings.Fields(string(text)) {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		f.Close()
		if err != nil && err != unix.EEXIST {
			return fmt.Errorf("load %s: %w", path, err)
		}
	}
	return nil
}

// enterRoot mounts the tree that the host shares, read-only with an in-memory overlay, and makes it the root directory
// of this process.
func enterRoot() error {
	const overlay = "lowerdir=/ro,upperdir=/rw/upper,workdir=/rw/work"
	if err := mountAll([]mount{
		{"root", "/ro", "9p", unix.MS_RDONLY,
			"trans=virtio,version=9p2000.L,msize=262144,cache=loose"},
		{"tmpfs", "/rw", "tmpfs", 0, ""},
	}); err != nil {
		return err
	}
	for _, dir := range []string{"/rw/upper", "/rw/work"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if err := mountAll([]mount{{"overlay", "/root", "overlay", 0, overlay}}); err != nil {
		return err
	}
	for _, dir := range []string{"/proc", "/sys", "/dev"} {
		if err := unix.Mount(dir, "/root"+dir, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("move %s: %w", dir, err)
		}
	}
	if err := unix.Chdir("/root"); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move the root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	return unix.Chdir("/")
}
