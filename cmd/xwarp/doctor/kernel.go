package doctor

import (
	"xwarp/bpf"
)

var kernelCheck = check{
	name: "kernel",
	why: "AF_XDP takes frames of several buffers from Linux " + bpf.Oldest + " on; the engine " +
		"always asks for that",
	look: func(*env) finding {
		release := bpf.Release()
		if !bpf.NewEnough(release) {
			return finding{Fail, "Linux " + release + " is older than " + bpf.Oldest,
				"install a newer kernel, or use transport = \"kernel\""}
		}
		return fine("Linux %s", release)
	},
}
