package daemon

import (
	"os"
	"runtime"
	"runtime/debug"

	"xwarp/engine/budget"
)

// LimitGarbage keeps the process near what the accounts of users count. The environment's GOGC counts more.
func LimitGarbage() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(budget.GarbagePercent)
	}
}

// processors is what the Go runtime used at the start: the machine's processors, or those of the control group.
var processors = runtime.GOMAXPROCS(0)

// ReserveProcessors lets the Go runtime run one goroutine more than the workers and the pumps can keep busy. While all
// of its processors are busy it looks for sockets and doorbells every 10 ms only, and leaves a goroutine that a worker
// woke where it is: one user's work would delay the others by that. The kernel shares the real processors among the
// threads.
func (d *Daemon) ReserveProcessors() {
	n := processors + 1 // pumps are at work on at most processors, see accounts.pumps
	for _, v := range d.list() {
		n += v.Core.Workers()
	}
	runtime.GOMAXPROCS(n)
}
