package daemon

import (
	"errors"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// kept are the capabilities that a running daemon needs: the kernel is asked to resolve next hops, and an
// interface that comes back needs memory for its frames, which is locked.
const kept = 1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_IPC_LOCK

// DropRights gives up, on every thread and for good, all capabilities but the one that a running daemon
// needs, and the right to get new ones by execve. Without privileges it does nothing. In a program with cgo
// it fails with ENOTSUP.
func DropRights() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	keep := data[0].Permitted & kept
	if data[0].Permitted == keep && data[1].Permitted == 0 {
		return nil
	}
	if _, _, e := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0,
		0); e != 0 {
		return e
	}
	if _, _, e := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT,
		unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0, 0); e != 0 && !errors.Is(e, unix.EINVAL) {
		return e
	}
	data = [2]unix.CapUserData{{Effective: keep, Permitted: keep}}
	header = unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	_, _, e := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)),
		uintptr(unsafe.Pointer(&data[0])), 0)
	if e != 0 {
		return e
	}
	return nil
}
