package doctor

import (
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"

	"xwarp/ring"
)

var memlockCheck = check{
	name: "memlock",
	why: "the frames of an AF_XDP socket are locked memory; without CAP_IPC_LOCK, RLIMIT_MEMLOCK " +
		"limits them",
	look: func(e *env) finding {
		need := uint64(len(e.opt.Queues)) * (ring.DefaultRxFrames + ring.DefaultTxSlots) *
			ring.ChunkSize
		// xwarpd.service has LimitMEMLOCK=infinity instead of CAP_IPC_LOCK. Without CAP_SYS_RESOURCE, systemd cannot
		// give it more than its own limit.
		if hard, mayRaise, err := serviceManager(); err == nil && hard < need && !mayRaise &&
			!unitLocksFreely() {
			return finding{Warn, sizes("process 1 is limited to %s and cannot raise that; "+
				"xwarpd.service needs %s", hard, need), "systemctl edit xwarpd: [Service], " +
				"CapabilityBoundingSet=CAP_IPC_LOCK, AmbientCapabilities=CAP_IPC_LOCK"}
		}
		have, err := effective()
		if err == nil && have&(1<<unix.CAP_IPC_LOCK) != 0 {
			return fine("unlimited (CAP_IPC_LOCK)")
		}
		var l unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l); err != nil {
			return warn("getrlimit: %v", err)
		}
		if l.Cur < need {
			return finding{Fail, sizes("limit %s, needed %s", l.Cur, need),
				"ulimit -l unlimited; for the daemon: LimitMEMLOCK=infinity"}
		}
		return fine("%s", sizes("limit %s, needed %s", l.Cur, need))
	},
}

// serviceManager returns the memlock limit of process 1, which services inherit, and whether process 1 can have the
// capability to raise it.
func serviceManager() (hard uint64, mayRaise bool, err error) {
	var l unix.Rlimit
	if err := unix.Prlimit(1, unix.RLIMIT_MEMLOCK, nil, &l); err != nil {
		return 0, false, err
	}
	text, err := os.ReadFile("/proc/1/status")
	if err != nil {
		return 0, false, err
	}
	_, bounding, _ := strings.Cut(string(text), "\nCapBnd:\t")
	var have uint64
	if _, err := fmt.Sscanf(bounding, "%x", &have); err != nil {
		return 0, false, err
	}
	return l.Max, have&(1<<unix.CAP_SYS_RESOURCE) != 0, nil
}

// unitLocksFreely reports whether a drop-in gives the unit of xwarpd CAP_IPC_LOCK.
func unitLocksFreely() bool {
	out, err := exec.Command("systemctl", "show", "--property=AmbientCapabilities",
		"xwarpd").Output()
	return err == nil && strings.Contains(string(out), "cap_ipc_lock")
}
