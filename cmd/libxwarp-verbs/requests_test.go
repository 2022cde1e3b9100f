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
		for _, test := range []string{"reads", "receives", "sends", "failures", "errors"} {
			t.Run(test, func(t *testing.T) {
				out := a.start(t, path+" "+test+" @", a).wait(t)
				if !strings.Contains(out, "all is well") {
					t.Error(out)
				}
			})
		}
	})
}
