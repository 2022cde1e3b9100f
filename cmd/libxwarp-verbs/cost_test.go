package libxwarpverbs_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"xwarp/bpf/needs"
)

// TestPostPoll runs the program of make post-poll and logs its figures, which are only valid on a quiet machine. It
// fails only if the program does.
func TestPostPoll(t *testing.T) {
	needs.Long(t)
	program := filepath.Join(dir, "postpoll")
	if out, err := exec.Command("./cost/build.sh", program).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command(program).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}
