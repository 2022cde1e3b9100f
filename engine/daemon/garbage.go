package daemon

import (
	"os"
	"runtime/debug"

	"xwarp/engine/budget"
)

// LimitGarbage keeps the process near what the accounts of users count. The environment's GOGC counts more.
func LimitGarbage() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(budget.GarbagePercent)
	}
}
