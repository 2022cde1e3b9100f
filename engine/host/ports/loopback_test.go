package ports

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func dial(ctx context.Context, from, to netip.AddrPort) (net.Conn, error) {
	d, err := Begin(from, to, func(int) {})
	if err != nil {
		return nil, err
	}
	return d.Wait(ctx)
}

// TestListenLocal: a local listener keeps its port as a reservation does, and the connections that Begin starts reach
// it.
func TestListenLocal(t *testing.T) {
	for _, a := range []string{"127.0.0.1", "::1", "0.0.0.0", "::"} {
		t.Run(a, func(t *testing.T) {
			ln, err := ListenLocal(netip.AddrPortFrom(netip.MustParseAddr(a), 0))
			if err != nil {
				t.Fatal(err)
			}
			at := ln.Addr().(*net.TCPAddr).AddrPort()
			if _, err := Reserve(at); !errors.Is(err, ErrInUse) {
				t.Errorf("a reservation of the port: %v", err)
			}
			if _, err := ListenLocal(at); !errors.Is(err, ErrInUse) {
				t.Errorf("a second listener: %v", err)
			}
			to := at
			if at.Addr().IsUnspecified() {
				to = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), at.Port())
				if at.Addr().Is6() {
					to = netip.AddrPortFrom(netip.IPv6Loopback(), at.Port())
				}
			}
			from := netip.AddrPortFrom(to.Addr(), 0)
			c, err := dial(t.Context(), from, to)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			s, err := ln.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if c.LocalAddr().String() != s.RemoteAddr().String() ||
				c.RemoteAddr().String() != to.String() {
				t.Errorf("%v to %v, accepted from %v", c.LocalAddr(), c.RemoteAddr(),
					s.RemoteAddr())
			}
			if err := ln.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := dial(t.Context(), from, to); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("without a listener: %v", err)
			}
			again, err := ListenLocal(at)
			if err != nil {
				t.Fatalf("beside a connection of the previous listener: %v", err)
			}
			again.Close()
		})
	}
}

// TestWaitGivesUp: a listener with a full backlog does not respond, and its dialer must not block.
func TestWaitGivesUp(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	err = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	if err == nil {
		err = unix.Listen(fd, 1)
	}
	sa, e := unix.Getsockname(fd)
	if err = errors.Join(err, e); err != nil {
		t.Fatal(err)
	}
	at := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), Of(sa))
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	for range 8 { // more than a backlog of 1 accepts
		c, err := dial(ctx, netip.AddrPort{}, at)
		if err == nil {
			defer c.Close()
			continue
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		return
	}
	t.Error("a backlog of 1 accepted 8 connections")
}
