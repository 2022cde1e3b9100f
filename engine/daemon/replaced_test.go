package daemon_test

import (
	"fmt"
	"os"
	"testing"

	"xwarp/engine/daemon/client"
)

// TestReplacedProgram: the daemon reports that its file was replaced, as an upgrade of the package does.
func TestReplacedProgram(t *testing.T) {
	exe, next := publicExe(t), publicExe(t)
	path, socket := writeConfig(t, "[[interface]]\nname = \"lo\"\ntransport = \"kernel\"\n")
	d := start(t, exe, 0, "daemon", fmt.Sprintf("/proc/%d/ns/net", os.Getpid()), path)
	if got := d.line(); got != "ready" {
		t.Fatalf("daemon: %q", got)
	}
	dev, err := client.Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	check := func(want bool) {
		t.Helper()
		if s, err := dev.Snapshot(t.Context()); err != nil || s.Replaced != want {
			t.Errorf("replaced: %v, %v", s.Replaced, err)
		}
	}
	check(false)
	if err := os.Rename(next, exe); err != nil {
		t.Fatal(err)
	}
	check(true)
}
