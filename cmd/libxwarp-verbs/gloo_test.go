package libxwarpverbs_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestGloo runs an allreduce of four processes on two hosts over Gloo's transport ibverbs. It exchanges memory keys by
// Sends with immediate data, and vectors by Writes with immediate data.
func TestGloo(t *testing.T) {
	path := filepath.Join(dir, "gloo")
	out, err := exec.Command("g++", "-std=c++17", "-Wall", "-Wextra", "-o", path,
		"testdata/gloo.cc", "-lgloo", "-libverbs", "-pthread").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	store := filepath.Join(dir, "store")
	if err := os.Mkdir(store, 0); err != nil {
		t.Fatal(err)
	}
	os.Chmod(store, 0o777)
	a, b := rocePair(t, "xdp")
	var ranks []*program
	for rank, e := range []*end{a, a, b, b} {
		ranks = append(ranks, e.start(t, fmt.Sprintf("%s %s %d 4", path, store, rank), a))
	}
	for _, p := range ranks {
		if out := p.wait(t); !strings.Contains(out, "all is well") {
			t.Error(out)
		}
	}
}
