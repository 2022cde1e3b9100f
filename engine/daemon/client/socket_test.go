package client_test

import (
	"path/filepath"
	"strings"
	"testing"

	"xwarp/engine/daemon/client"
)

// TestSocketVariable: the environment variable with the daemon's socket, which a container sets, applies if the program
// names no socket.
func TestSocketVariable(t *testing.T) {
	named, given := filepath.Join(t.TempDir(), "named"), filepath.Join(t.TempDir(), "given")
	t.Setenv(client.SocketVariable, named)
	for path, want := range map[string]string{"": named, given: given} {
		if _, err := client.Open(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open(%q): %v, want %s in it", path, err, want)
		}
	}
}
