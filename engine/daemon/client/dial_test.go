package client

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestQueueIsFull calls dialSocket while the accept queue of the daemon's socket is full, which another user can
// achieve. The call must wait until the daemon accepts a connection.
func TestQueueIsFull(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	for full := false; !full; {
		c, err := net.Dial("unix", path)
		if full = err != nil; !full {
			defer c.Close()
		}
	}
	connected := make(chan error)
	go func() {
		c, err := dialSocket(path)
		if err == nil {
			c.Close()
		}
		connected <- err
	}()
	select {
	case err := <-connected:
		t.Fatalf("connected to a full queue: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	n, _, err := unix.Accept(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(n)
	if err := <-connected; err != nil {
		t.Error(err)
	}
}
