package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"xwarp/engine/daemon/client"
	"xwarp/engine/testkit/verbstest"
)

// TestHostDown: the error of a program that connects to a host that is down says which address on which interface does
// not answer, and has EHOSTUNREACH.
func TestHostDown(t *testing.T) {
	tn := hosts(t)
	_, socket := run(t, tn.A, ethTable)
	dev, err := client.Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	for at, by := range map[netip.Addr]string{
		tn.B.Addr4.Addr().Next(): "ARP", tn.B.Addr6.Addr().Next(): "neighbour discovery",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		_, err := verbstest.New(t, dev, 4096).Dial(ctx, netip.AddrPortFrom(at, 7174))
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, syscall.EHOSTUNREACH) ||
			!strings.Contains(err.Error(), fmt.Sprintf("%s got no answer for %v on eth0", by, at)) {
			t.Errorf("%v: %v", at, err)
		}
	}
}
