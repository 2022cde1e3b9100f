package daemon

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"xwarp/engine/daemon/config"
)

// A symbolic link in place of the socket is not followed. Otherwise anyone with write access to the directory could
// make root change another file's permissions.
func TestHandOverFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	victim, socket := filepath.Join(dir, "victim"), filepath.Join(dir, "control.sock")
	c := programsOwner(&config.Daemon{SocketMode: 0o666})
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
	if err := setOwner(socket, c); err == nil ||
		!strings.Contains(err.Error(), "another user can create files there") {
		t.Errorf("handOver: %v", err)
	}
	if st, err := os.Stat(victim); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the other file has mode %v, %v", st.Mode(), err)
	}
}

// TestEmptyGroup: without socket_group the socket keeps the group of the daemon's process, as default.toml says.
func TestEmptyGroup(t *testing.T) {
	dir := t.TempDir()
	const other = 65534
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its group
		if _, _, e := unix.RawSyscall(unix.SYS_SETFSGID, other, 0, 0); e != 0 {
			done <- e
			return
		}
		ln, err := listenUnix(filepath.Join(dir, "s"),
			programsOwner(&config.Daemon{SocketMode: 0o660}))
		if err == nil {
			t.Cleanup(func() { ln.Close() })
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Join(dir, "s"), &st); err != nil || st.Gid != other {
		t.Errorf("the socket belongs to group %d, %v", st.Gid, err)
	}
}
