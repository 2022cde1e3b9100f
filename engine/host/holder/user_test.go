package holder

import (
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// TestUserOf finds the user of a connection's socket, over IPv4, over IPv6, and over IPv4 to an IPv6 listener. For a
// connection that does not exist, UserOf returns an error.
func TestUserOf(t *testing.T) {
	const other = 12345
	for listen, dial := range map[string]string{
		"127.0.0.1": "127.0.0.1", "::1": "::1", "::": "127.0.0.1",
	} {
		l, err := net.Listen("tcp", net.JoinHostPort(listen, "0"))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		_, port, _ := net.SplitHostPort(l.Addr().String())
		c, err := net.Dial("tcp", net.JoinHostPort(dial, port))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		raw, err := c.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		raw.Control(func(fd uintptr) { err = unix.Fchown(int(fd), other, -1) })
		if err != nil {
			t.Fatal(err)
		}
		ours, _ := netip.ParseAddrPort(c.LocalAddr().String())
		theirs, _ := netip.ParseAddrPort(c.RemoteAddr().String())
		if uid, err := UserOf(ours, theirs); err != nil || uid != other {
			t.Errorf("%v to %v: user %d, %v", ours, theirs, uid, err)
		}
		nobody := netip.AddrPortFrom(ours.Addr(), 1)
		if uid, err := UserOf(nobody, theirs); err == nil {
			t.Errorf("%v to %v: user %d", nobody, theirs, uid)
		}
	}
}
