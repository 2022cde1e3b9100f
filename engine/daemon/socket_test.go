package daemon

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/engine/daemon/config"
)

// TestHandOverFollowsNoLink: setAccess does not follow a symbolic link in place of the socket. Otherwise anyone with
// write access to the directory could make root change the permissions of another file.
func TestHandOverFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	victim, socket := filepath.Join(dir, "victim"), filepath.Join(dir, "control.sock")
	c := programsAccess(&config.Daemon{SocketMode: 0o666})
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
	if err := setAccess(socket, c); err == nil ||
		!strings.Contains(err.Error(), "another user can create files there") {
		t.Errorf("a socket in a directory of another user: %v", err)
	}
	if st, err := os.Stat(victim); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the other file has mode %v, %v", st.Mode(), err)
	}
}

// TestSocketAppearsWithItsMode opens a socket again and again, with a umask that denies others access. A client of
// another user must find no socket, or one that it may connect to.
func TestSocketAppearsWithItsMode(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(dir, "s"), filepath.Join(dir, longName(dir))} {
		stop, wrong := make(chan struct{}), make(chan fs.FileMode, 1)
		go func() {
			defer close(wrong)
			for {
				if st, err := os.Lstat(path); err == nil && st.Mode().Perm() != 0o666 {
					wrong <- st.Mode()
					return
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		}()
		for range 300 {
			ln, err := listenUnix(path, socketAccess{mode: 0o666})
			if err != nil {
				t.Fatal(err)
			}
			if ln.Addr().String() != path {
				t.Errorf("the address is %v", ln.Addr())
			}
			c, err := net.Dial("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			c.Close()
			ln.Close()
			if list, err := os.ReadDir(dir); len(list) != 0 || err != nil {
				t.Fatalf("left over: %v, %v", list, err)
			}
		}
		close(stop)
		for mode := range wrong {
			t.Errorf("the socket was visible with mode %v", mode)
		}
	}
}

// TestOneOfManyServes opens one socket many times at once, in place of one left by a killed daemon. Exactly one call
// may succeed, and the socket under the path must belong to its listener.
func TestOneOfManyServes(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	for round := range 50 {
		left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		left.SetUnlinkOnClose(false)
		left.Close()
		const n = 16
		var got [n]*unixListener
		var failed [n]error
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() { got[i], failed[i] = listenUnix(path, socketAccess{mode: 0o600}) })
		}
		all.Wait()
		serving := 0
		for i, ln := range got {
			if ln == nil && !errors.Is(failed[i], errServed) {
				t.Fatalf("round %d: %v", round, failed[i])
			}
			if ln == nil {
				continue
			}
			serving++
			c, err := net.Dial("unix", path)
			if err != nil {
				t.Fatalf("round %d: the listener has no socket: %v", round, err)
			}
			ln.SetDeadline(time.Now().Add(10 * time.Second))
			if a, err := ln.AcceptUnix(); err != nil {
				t.Errorf("round %d: the socket is of another listener: %v", round, err)
			} else {
				a.Close()
			}
			c.Close()
			ln.Close()
		}
		if list, err := os.ReadDir(dir); serving != 1 || len(list) != 0 || err != nil {
			t.Fatalf("round %d: %d serve; left over: %v, %v", round, serving, list, err)
		}
	}
}

// longName returns a name with which a path in dir has the maximum length of a socket's path.
func longName(dir string) string { return strings.Repeat("x", maxSocketPath-len(dir)-1) }

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
			programsAccess(&config.Daemon{SocketMode: 0o660}))
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
