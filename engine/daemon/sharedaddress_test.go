package daemon_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"xwarp/bench/topo"
	"xwarp/engine/sockets"
)

// TestSharedAddress: two interfaces have one address. The daemon warns once, with both names, the address and the next
// step, and serves the first interface as before.
func TestSharedAddress(t *testing.T) {
	tn := hosts(t, topo.Options{IPv4Only: true, OffloadsB: topo.NoOffloads})
	at := tn.A.Addr4.Addr()
	if err := tn.A.AddVeth("own0", "own1", at); err != nil {
		t.Fatal(err)
	}
	d, _ := run(t, tn.A, ethTable+"[[interface]]\nname = \"own0\"\n"+fmt.Sprintf("[[export]]\n"+
		"name = \"memory\"\ninterface = \"eth0\"\nlisten = \"%v:7174\"\nsize = \"1MiB\"\n", at))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	const warning = "two interfaces have one address"
	if _, ok := eventually(func() bool { return event(d.Snapshot(), warning) != nil }); !ok {
		t.Fatal("no warning")
	}
	e := event(d.Snapshot(), warning)
	if e.Device != "own0" || e.Detail["other"] != "eth0" || e.Detail["address"] != at.String() ||
		!strings.Contains(e.Detail["next"], "xwarp doctor --interface own0") {
		t.Errorf("the line of the log: %+v", e)
	}
	if _, err := dialExportBy(t, sockets.Config{Dial: tn.B.Dial},
		netip.AddrPortFrom(at, 7174)); err != nil {
		t.Errorf("the export on eth0: %v", err)
	}
	time.Sleep(6 * time.Second) // longer than the interval of the checks
	n := 0
	for _, e := range d.Snapshot().Events {
		if strings.HasPrefix(e.Event, warning) {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d warnings", n)
	}
}
