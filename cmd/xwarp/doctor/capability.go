package doctor

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// needed are the required capabilities, each with the reason.
var needed = []struct {
	name string
	bit  int
}{
	{"CAP_NET_ADMIN", unix.CAP_NET_ADMIN}, // attaching XDP programs
	{"CAP_NET_RAW", unix.CAP_NET_RAW},     // AF_XDP sockets
	{"CAP_BPF", unix.CAP_BPF},             // loading XDP programs
	{"CAP_PERFMON", unix.CAP_PERFMON},     // packet pointers with a variable offset
}

var capabilityCheck = check{
	name: "capabilities",
	why: "required to load and attach the steering program and to open AF_XDP sockets; the " +
		"daemon drops them after its start",
	look: func(*env) finding {
		have, err := effective()
		if err != nil {
			return warn("capget: %v", err)
		}
		return capabilities(have)
	},
}

// capabilities checks a set of capabilities, given as bits. CAP_SYS_ADMIN includes CAP_BPF and CAP_PERFMON.
func capabilities(have uint64) finding {
	if have&(1<<unix.CAP_SYS_ADMIN) != 0 {
		have |= 1<<unix.CAP_BPF | 1<<unix.CAP_PERFMON
	}
	var missing []string
	for _, c := range needed {
		if have&(1<<c.bit) == 0 {
			missing = append(missing, c.name)
		}
	}
	if len(missing) > 0 {
		return finding{Fail, "missing: " + strings.Join(missing, ", "),
			"sudo xwarp doctor; for the daemon: AmbientCapabilities=" + strings.Join(missing, " ")}
	}
	return fine("all %d present", len(needed))
}

// effective returns the thread's effective capabilities as a bit set.
func effective() (uint64, error) {
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var d [2]unix.CapUserData
	if err := unix.Capget(&h, &d[0]); err != nil {
		return 0, fmt.Errorf("capget: %w", err)
	}
	return uint64(d[1].Effective)<<32 | uint64(d[0].Effective), nil
}
