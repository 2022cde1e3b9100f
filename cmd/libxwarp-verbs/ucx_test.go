package libxwarpverbs_test

import (
	"strings"
	"testing"
)

// TestUCX runs the UCX measurements that use one transport without tag matching, for each transfer mode. UCX looks for
// the device in sysfs before it calls libibverbs.
func TestUCX(t *testing.T) {
	a, b := rocePair(t, "xdp")
	info := a.start(t, "ucx_info -d -t rc_verbs", b).wait(t)
	for _, want := range []string{"Device: xwarp_eth0:1", "put_zcopy: <=", "atomic_cswap: 64 bit"} {
		if !strings.Contains(info, want) {
			t.Errorf("no %q in\n%s", want, info)
		}
	}
	for _, line := range []string{
		"am_lat -D short", "am_bw -D bcopy -s 2000", "am_bw -D zcopy -s 4000",
		"put_lat -D short", "put_lat -D bcopy -s 4096", "put_bw -D zcopy -s 100000",
		"get -D bcopy -s 500", "get -D zcopy -s 65536", "fadd", "cswap",
	} {
		t.Run(line, func(t *testing.T) {
			const server = "ucx_perftest -f -d xwarp_eth0:1 -x rc_verbs -n 100 -w 10 -p 18515"
			line := server + " -t " + line
			x := exchange{server, line + " @", "Accepted connection", `(?m)^ +100 +[0-9.]+ `}
			x.runRoCE(t, a, b)
		})
	}
}
