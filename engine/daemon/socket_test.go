package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"xwarp/engine/daemon/config"
)

// A link in the place of the socket is not followed: whoever may write to the directory would have root
// change another file's rights.
func TestHandOverFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	victim, socket := filepath.Join(dir, "victim"), filepath.Join(dir, "control.sock")
	c := programs(&config.Daemon{SocketMode: 0o666})
	ln, err := listenUnix(socket, c)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Lstat(socket); err != nil || st.Mode().Perm() != 0o666 {
		t.Errorf("the socket: %v, %v", st.Mode(), err)
	}
	ln.Close()
	if err := os.WriteFile(victim, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, socket); err != nil {
		t.Fatal(err)
	}
	if err := handOver(socket, c); err == nil ||
		!strings.Contains(err.Error(), "somebody else puts files there") {
		t.Errorf("handOver: %v", err)
	}
	if st, err := os.Stat(victim); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the other file has mode %v, %v", st.Mode(), err)
	}
}
