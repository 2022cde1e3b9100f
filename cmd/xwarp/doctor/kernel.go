package doctor

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Oldest kernel: AF_XDP sockets take packets of several buffers (XDP_USE_SG) from 6.6 on.
const needMajor, needMinor = 6, 6

var kernelCheck = check{
	name: "kernel",
	why:  "AF_XDP takes frames of several buffers from Linux 6.6 on; the engine always asks for that",
	look: func(*env) finding {
		var u unix.Utsname
		if err := unix.Uname(&u); err != nil {
			return warn("uname: %v", err)
		}
		release := unix.ByteSliceToString(u.Release[:])
		if !newEnough(release) {
			return finding{Fail, "Linux " + release + " is older than 6.6",
				"install a newer kernel, or use transport = \"kernel\""}
		}
		return fine("Linux %s", release)
	},
}

func newEnough(release string) bool {
	var major, minor int
	if n, _ := fmt.Sscanf(release, "%d.%d", &major, &minor); n != 2 {
		return false
	}
	return major > needMajor || major == needMajor && minor >= needMinor
}
