package doctor

import (
	"testing"

	"xwarp/engine/host/holder"
)

// TestAllOwn: a port is xwarp's only if a holder is known, and every known holder is xwarp's.
func TestAllOwn(t *testing.T) {
	ours := holder.Process{Pid: 1, Command: "xwarpd"}
	other := holder.Process{Pid: 2, Command: "nginx"}
	for _, c := range []struct {
		list []holder.Process
		want bool
	}{{nil, false}, {[]holder.Process{ours}, true}, {[]holder.Process{ours, other}, false}} {
		if got := allOwn(c.list); got != c.want {
			t.Errorf("%v: %t", c.list, got)
		}
	}
}
