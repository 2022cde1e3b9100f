package ports

import (
	"errors"
	"net"
	"net/netip"
	"testing"
)

func TestReservedPortIsTaken(t *testing.T) {
	for _, a := range []string{"127.0.0.1", "::1"} {
		r, err := Reserve(netip.AddrPortFrom(netip.MustParseAddr(a), 0))
		if err != nil {
			t.Fatal(err)
		}
		if r.Addr().Port() == 0 {
			t.Fatalf("%s: no port chosen", a)
		}
		if l, err := net.Listen("tcp", r.Addr().String()); err == nil {
			l.Close()
			t.Errorf("%v: a socket took the reserved port", r.Addr())
		}
		if _, err := Reserve(r.Addr()); !errors.Is(err, ErrInUse) {
			t.Errorf("second reservation: %v, want ErrInUse", err)
		}
		r.Close()
		r.Close()
		l, err := net.Listen("tcp", r.Addr().String())
		if err != nil {
			t.Fatalf("after Close: %v", err)
		}
		l.Close()
	}
}

func TestReserveForeignAddress(t *testing.T) {
	if _, err := Reserve(netip.MustParseAddrPort("203.0.113.9:7174")); err == nil {
		t.Fatal("reserved a port on an address that this host does not have")
	}
}
