// Package capability drops capabilities(7) of the process.
package capability

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Keep drops, on every thread, all capabilities except those in set, whose bit n stands for capability n. Capabilities
// above 31 are dropped. In a program with cgo it fails with ENOTSUP.
func Keep(set uint32) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{{Effective: set, Permitted: set}}
	_, _, e := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)),
		uintptr(unsafe.Pointer(&data[0])), 0)
	if e != 0 {
		return e
	}
	return nil
}
