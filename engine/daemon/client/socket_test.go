package client_test

import (
	"path/filepath"
	"strings"
	"testing"

	"xwarp/engine/daemon/client"
)

// TestSocketVariable: what a container says of the daemon's socket counts where the program says nothing.
func TestSocketVariable(t *testing.T) {
	named, given := filepath.Join(t.TempDir(), "named"), filepath.Join(t.TempDir(), "given")
	t.Setenv(client.SocketVariable, named)
	for path, want := range map[string]string{"": named, given: given} {
		if _, err := client.Open(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open(%q): %v, want %s in it", path, err, want)
		}
	}
}
