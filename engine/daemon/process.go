package daemon

import (
	"errors"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"xwarp/engine/budget"
	"xwarp/engine/daemon/config"
	"xwarp/engine/host/capability"
)

// isReplaced reports whether the file of this program was replaced or removed, as an upgrade does (proc_pid_exe(5)).
func isReplaced() bool {
	exe, err := os.Readlink("/proc/self/exe")
	return err == nil && strings.HasSuffix(exe, " (deleted)")
}

// keptCapabilities are the capabilities that every running daemon needs: to make the kernel resolve next hops, and to
// lock the frame memory of a reopened interface.
const keptCapabilities = 1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_IPC_LOCK

// firstUnprivileged is the first port that a process without capabilities may bind by default
// (net.ipv4.ip_unprivileged_port_start).
const firstUnprivileged = 1024

// capabilities returns the capabilities that a running daemon of this configuration needs. An export binds its port
// again when its interface comes back, and when a reload changes it.
func capabilities(c *config.Config) uint32 {
	for _, e := range c.Export {
		if e.Listen.Port() < firstUnprivileged {
			return keptCapabilities | 1<<unix.CAP_NET_BIND_SERVICE
		}
	}
	return keptCapabilities
}

// DropRights drops, on every thread, all capabilities except those that a running daemon needs, and the right to gain
// new ones by execve. Without privileges it does nothing. In a program with cgo it fails with ENOTSUP.
func DropRights(c *config.Config) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	keep := data[0].Permitted & capabilities(c)
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
	return capability.Keep(keep)
}

// LimitGarbage sets the GC percentage, so that the heap stays near the sum of the accounts. GOGC in the environment
// overrides it.
func LimitGarbage() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(budget.GarbagePercent)
	}
}

// processors is GOMAXPROCS at the start: the CPUs of the machine or of the control group.
var processors = runtime.GOMAXPROCS(0)

// ReserveProcessors raises GOMAXPROCS to one more than the number of workers and pumps that can be busy at a time.
// While all Ps are busy, the Go runtime polls sockets and doorbells only every 10 ms, and a goroutine readied by a busy
// worker sits on that worker's P: one user's work would delay the others. The kernel schedules the threads.
func (d *Daemon) ReserveProcessors() {
	n := processors + 1 // at most processors pumps are active, see budget.NewUsers
	for _, v := range d.deviceList() {
		n += v.Core.Workers()
	}
	runtime.GOMAXPROCS(n)
}
