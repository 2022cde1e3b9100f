package main

import (
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// fullDisk is an output whose writes fail, as on a full disk.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, unix.ENOSPC }

// TestOutputErrors: --help of every command, and the commands that need no daemon, end with status 1 and a message if
// their output cannot be written.
func TestOutputErrors(t *testing.T) {
	lines := []string{"", "--help", "--version", "help", "help cp", "version", "version -j",
		"json", "explain --list",
		"explain ECONNREFUSED", "config default", "config show --config /dev/null",
		"completion bash", "completion zsh", "completion fish", "completion powershell"}
	var walk func(path string, c *cobra.Command)
	walk = func(path string, c *cobra.Command) {
		for _, sub := range c.Commands() {
			at := strings.TrimSpace(path + " " + sub.Name())
			lines = append(lines, at+" --help")
			walk(at, sub)
		}
	}
	walk("", newRoot())
	for _, line := range lines {
		var stderr strings.Builder
		status := execute(t.Context(), strings.Fields(line), fullDisk{}, &stderr)
		if status != exitFailed || !strings.Contains(stderr.String(), unix.ENOSPC.Error()) {
			t.Errorf("xwarp %s: status %d, %q", line, status, stderr.String())
		}
		status = execute(t.Context(), strings.Fields(line), io.Discard, &stderr)
		if status != exitOK {
			t.Errorf("xwarp %s: status %d: %s", line, status, stderr.String())
		}
	}
	if len(lines) < 40 {
		t.Errorf("%d command lines", len(lines))
	}
}
