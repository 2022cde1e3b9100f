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

// TestTimeWaitDoesNotBlock: a port on which connections of a kernel listener are in TIME-WAIT can be reserved, and the
// reservation excludes others.
func TestTimeWaitDoesNotBlock(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	at := l.Addr().(*net.TCPAddr).AddrPort()
	client, err := net.Dial("tcp4", at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if _, err := Reserve(at); !errors.Is(err, ErrInUse) {
		t.Errorf("with a live connection: %v, want ErrInUse", err)
	}
	server.Close() // first, so TIME-WAIT is on this side
	if _, err := client.Read(make([]byte, 1)); err == nil {
		t.Fatal("the server did not close")
	}
	client.Close()
	r, err := Reserve(at)
	if err != nil {
		t.Fatalf("TIME-WAIT: %v", err)
	}
	if _, err := Reserve(at); !errors.Is(err, ErrInUse) {
		t.Errorf("second reservation: %v, want ErrInUse", err)
	}
	if other, err := net.Listen("tcp4", at.String()); err == nil {
		other.Close()
		t.Error("a socket listens at the reserved port")
	}
	r.Close()
	if again, err := Reserve(at); err != nil {
		t.Errorf("after Close: %v", err)
	} else {
		again.Close()
	}
}
