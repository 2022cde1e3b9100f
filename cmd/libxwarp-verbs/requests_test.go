package libxwarpverbs_test

import (
	"strings"
	"testing"
)

// styles runs f in both styles of a device, over both transports.
func styles(t *testing.T, f func(t *testing.T, a *end)) {
	roceTransports(t, func(t *testing.T, a, _ *end) {
		iwarp := *a
		iwarp.env = []string{"XWARP_STYLE=iwarp"}
		t.Run("iwarp", func(t *testing.T) { f(t, &iwarp) })
		t.Run("roce", func(t *testing.T) { f(t, a) })
	})
}

// TestRequests runs a program with two connected queue pairs, whose requests succeed and fail in the ways of the manual
// pages. It runs once in each style over each transport.
func TestRequests(t *testing.T) {
	path := own(t, "requests")
	styles(t, func(t *testing.T, a *end) {
		for _, test := range []string{"reads", "receives", "sends", "failures", "errors", "events",
			"files", "options", "ports"} {
			t.Run(test, func(t *testing.T) {
				out := a.start(t, path+" "+test+" @", a).wait(t)
				if !strings.Contains(out, "all is well") || strings.Contains(out, "not supported") {
					t.Error(out)
				}
				const tos = "xwarp: rdma_set_option: RDMA_OPTION_ID_TOS has 4 bytes: it needs one, 0 to 255\n"
				if test == "options" && !strings.Contains(out, tos) {
					t.Errorf("%s, want %q", out, tos)
				}
			})
		}
	})
}

// TestFlags walks every bit of every argument with flags.
func TestFlags(t *testing.T) {
	path := own(t, "flags")
	a, _ := pair(t)
	for _, style := range []string{"iwarp", "roce"} {
		e := *a
		e.env = []string{"XWARP_STYLE=" + style}
		if out := e.start(t, path, a).wait(t); !strings.Contains(out, "all is well") {
			t.Errorf("style %s: %s", style, out)
		}
	}
}

// TestOwnQueuePairs runs rping with queue pairs that it moves through their states itself.
func TestOwnQueuePairs(t *testing.T) {
	const last = "rdma-ping-4: EFGHIJ"
	for _, style := range []string{"iwarp", "roce"} {
		t.Run(style, func(t *testing.T) {
			a, b := pair(t)
			for _, e := range []*end{a, b} {
				e.env = append(e.env, "XWARP_STYLE="+style)
			}
			x := exchange{"rping -s -q -v -V -C 5", "rping -c -q -v -V -C 5 -a @", last, last}
			x.run(t, a, b)
		})
	}
}

// TestDebugOff checks that the library prints errors of the daemon with XWARP_DEBUG=1, but not with 0 or an empty
// value.
func TestDebugOff(t *testing.T) {
	a, b := pair(t)
	for _, value := range []string{"", "0", "1"} {
		e := *a
		e.env = []string{"XWARP_DEBUG=" + value}
		out := e.start(t, "rping -c -C 1 -a @", b).end(t)
		if strings.Contains(out, "xwarp: xwarpd: ") != (value == "1") {
			t.Errorf("XWARP_DEBUG=%s: %s", value, out)
		}
	}
}
