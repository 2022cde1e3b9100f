package client

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestHintNamesTheGroup: the hint for a refused user has the command to join the group of the socket. For the group
// root it says instead that only root may connect.
func TestHintNamesTheGroup(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	if err := os.WriteFile(path, nil, 0o660); err != nil {
		t.Fatal(err)
	}
	for gid, want := range map[int]string{0: "only root", 1: "usermod -aG daemon ",
		4242424: "usermod -aG 4242424 "} {
		if err := os.Chown(path, -1, gid); err != nil {
			t.Fatal(err)
		}
		if got := hint(path, unix.EACCES); !strings.Contains(got, want) {
			t.Errorf("group %d: %q, want %q", gid, got, want)
		}
	}
	if got := hint(path, unix.ENOENT); strings.Contains(got, "group") {
		t.Errorf("no socket: %q", got)
	}
}
