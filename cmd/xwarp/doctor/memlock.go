package doctor

import (
	"golang.org/x/sys/unix"

	"xwarp/ring"
)

var memlockCheck = check{
	name: "memlock",
	why: "the frames of an AF_XDP socket are locked memory: without CAP_IPC_LOCK they must fit " +
		"RLIMIT_MEMLOCK",
	look: func(e *env) finding {
		have, err := effective()
		if err == nil && have&(1<<unix.CAP_IPC_LOCK) != 0 {
			return fine("CAP_IPC_LOCK lifts the limit")
		}
		var l unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l); err != nil {
			return warn("getrlimit: %v", err)
		}
		need := uint64(len(e.opt.Queues)) * (ring.DefaultRxFrames + ring.DefaultTxSlots) *
			ring.ChunkSize
		if l.Cur < need {
			return finding{Fail, sizes("%s are allowed, %s are needed", l.Cur, need),
				"ulimit -l unlimited; for the daemon: LimitMEMLOCK=infinity"}
		}
		return fine("%s", sizes("%s are allowed, %s are needed", l.Cur, need))
	},
}
