package daemon

import (
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestCarriesFiles: carriesFiles finds descriptors that were sent after unread bytes. After its call, the other end can
// send nothing more.
func TestCarriesFiles(t *testing.T) {
	ends := func() (a, b *net.UnixConn) {
		p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		open := func(fd int) *net.UnixConn {
			f := os.NewFile(uintptr(fd), "")
			defer f.Close()
			c, err := net.FileConn(f)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			return c.(*net.UnixConn)
		}
		return open(p[0]), open(p[1])
	}
	for _, before := range []int{0, 1, 100_000} {
		a, b := ends()
		b.Write(make([]byte, before))
		if carriesFiles(a) {
			t.Errorf("descriptors in %d bytes without any", before)
		}
		if _, err := b.Write([]byte{1}); err == nil {
			t.Error("more can be sent after the question")
		}
		a, b = ends()
		b.Write(make([]byte, before))
		if _, _, err := b.WriteMsgUnix([]byte{1}, unix.UnixRights(0), nil); err != nil {
			t.Fatal(err)
		}
		if !carriesFiles(a) {
			t.Errorf("no descriptor after %d bytes", before)
		}
	}
}
