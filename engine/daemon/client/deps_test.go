package client_test

import (
	"os/exec"
	"strings"
	"testing"
)

// TestDeps: an unprivileged program must not link packages that only privileged programs need.
func TestDeps(t *testing.T) {
	for _, pkg := range []string{"xwarp/engine/daemon/client", "xwarp/engine/verbs"} {
		out, err := exec.Command("go", "list", "-deps", pkg).Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, dep := range strings.Fields(string(out)) {
			for _, banned := range []string{"netlink", "netns", "cilium/ebpf",
				"xwarp/ring", "xwarp/bpf", "xwarp/engine/stack"} {
				if strings.Contains(dep, banned) {
					t.Errorf("%s links %s", pkg, dep)
				}
			}
			if dep == "xwarp/engine/internal/core" {
				t.Errorf("%s links the embedded engine", pkg)
			}
		}
	}
}
