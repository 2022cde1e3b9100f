package bpf

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Oldest is the first kernel whose AF_XDP sockets take packets of several buffers (XDP_USE_SG), which the engine needs.
// The verifiers of older kernels refuse the program, too.
const Oldest = "6.6"

// NewEnough reports whether a release is Oldest or later.
func NewEnough(release string) bool {
	var major, minor, needMajor, needMinor int
	fmt.Sscanf(Oldest, "%d.%d", &needMajor, &needMinor)
	if n, _ := fmt.Sscanf(release, "%d.%d", &major, &minor); n != 2 {
		return false
	}
	return major > needMajor || major == needMajor && minor >= needMinor
}

// Release returns the release of the running kernel, as uname -r prints it, or "" when it is unknown.
func Release() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}
