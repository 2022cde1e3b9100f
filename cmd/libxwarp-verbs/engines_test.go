package libxwarpverbs_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestEngines makes the calls that 3FS and NCCL make first, in their order. 3FS reads the type of each GID below the
// path of the device, and NCCL below /sys/class/infiniband. It also runs stamps, which checks timestamps of
// completions.
func TestEngines(t *testing.T) {
	path := filepath.Join(dir, "engines")
	out, err := exec.Command("g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-o", path,
		"testdata/engines.cc", "-libverbs", "-pthread").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	a, _ := rocePair(t, "xdp")
	for _, engine := range []string{"3fs", "nccl"} {
		if out := a.start(t, path+" "+engine, a).wait(t); !strings.Contains(out, "all is well") {
			t.Errorf("%s: %s", engine, out)
		}
	}
	stamps := own(t, "stamps")
	iwarp := *a
	iwarp.env = nil
	for _, e := range []*end{a, &iwarp} {
		if out := e.start(t, stamps, e).wait(t); !strings.Contains(out, "all is well") {
			t.Errorf("%v: %s", e.env, out)
		}
	}
}
