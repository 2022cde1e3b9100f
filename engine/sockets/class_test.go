package sockets_test

import (
	"context"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"xwarp/engine/internal/core"
	"xwarp/engine/sockets"
	"xwarp/engine/verbs"
)

// TestSYNHasClass: the SYN of a connection, which a kernel listener saves, has the DSCP of DialConfig, or that of the
// device if it is zero, and the hop limit of the device. Open refuses values that are out of range.
func TestSYNHasClass(t *testing.T) {
	dev, err := sockets.Open(sockets.Config{Options: core.Options{DSCP: 46, HopLimit: 33}})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
		for asked, want := range map[int]uint8{0: 46, 10: 10, verbs.None: 0} {
			c := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
				return raw.Control(func(fd uintptr) {
					if err := unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_SAVE_SYN,
						1); err != nil {
						t.Error(err)
					}
				})
			}}
			c.SetMultipathTCP(false)
			ln, err := c.Listen(t.Context(), "tcp", at)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				defer cancel()
				sock, err := ln.Accept()
				if err != nil {
					t.Error(err)
					return
				}
				defer sock.Close()
				raw, err := sock.(syscall.Conn).SyscallConn()
				if err != nil {
					t.Error(err)
					return
				}
				raw.Control(func(fd uintptr) {
					syn := make([]byte, 128)
					n := uint32(len(syn))
					_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.IPPROTO_TCP,
						unix.TCP_SAVED_SYN,
						uintptr(unsafe.Pointer(&syn[0])), uintptr(unsafe.Pointer(&n)), 0)
					if errno != 0 {
						t.Error(errno)
						return
					}
					tos, hops := syn[1], syn[8]
					if syn[0]>>4 == 6 {
						tos, hops = syn[0]<<4|syn[1]>>4, syn[7]
					}
					if tos != want<<2 || hops != 33 {
						t.Errorf("%s, DSCP %d: TOS %#x, hop limit %d", at, asked, tos, hops)
					}
				})
			}()
			e, err := verbs.NewEndpoint(dev, verbs.EndpointConfig{})
			if err != nil {
				t.Fatal(err)
			}
			remote := netip.MustParseAddrPort(ln.Addr().String())
			if err := e.Dial(ctx, remote, verbs.DialConfig{DSCP: asked}); err == nil {
				t.Error("a listener without MPA answered")
			}
			<-ctx.Done()
			ln.Close()
			e.Close()
		}
	}
	for _, o := range []core.Options{{DSCP: 64}, {DSCP: -1 << 8}, {HopLimit: 256}, {HopLimit: -1}} {
		if _, err := sockets.Open(sockets.Config{Options: o}); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}
