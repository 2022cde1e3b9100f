package xdp_test

import (
	"errors"
	"net/netip"
	"sync"
	"testing"

	"xwarp/engine/internal/core"
	"xwarp/engine/sockets"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/verbs"
)

// TestInfoWhileConnecting calls Info on queue pairs that are being connected, also for the race detector. Once Info
// returns no error, both addresses must be valid. When the queue pairs are connected, their addresses must match.
func TestInfoWhileConnecting(t *testing.T) {
	dev, err := sockets.Open(sockets.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	for range 20 {
		a, b := verbstest.New(t, dev, 4096), verbstest.New(t, dev, 4096)
		stop := make(chan struct{})
		var group sync.WaitGroup
		for _, q := range []verbs.QP{a.QP, b.QP} {
			group.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					i, err := q.Info()
					if local, remote := q.LocalAddr(), q.RemoteAddr(); err == nil &&
						(!local.IsValid() || !remote.IsValid()) {
						t.Errorf("%v, and the ends are %v and %v", i.State, local, remote)
						return
					}
					core.Infos([]verbs.QP{a.QP, b.QP})
				}
			})
		}
		verbstest.Connect(t, a, b, netip.MustParseAddrPort("127.0.0.1:0"))
		close(stop)
		group.Wait()
		if a.QP.LocalAddr() != b.QP.RemoteAddr() || a.QP.RemoteAddr() != b.QP.LocalAddr() {
			t.Errorf("%v to %v, and %v to %v", a.QP.LocalAddr(), a.QP.RemoteAddr(),
				b.QP.LocalAddr(), b.QP.RemoteAddr())
		}
		for i, info := range core.Infos([]verbs.QP{a.QP, b.QP}) {
			if info == nil {
				t.Errorf("queue pair %d is unknown", i)
			}
		}
		a.QP.Close()
		b.QP.Close()
	}
}

// TestReadDepth: SetReadDepth gives a connection smaller read depths than its queue pair allows, and refuses larger
// ones.
func TestReadDepth(t *testing.T) {
	dev, err := sockets.Open(sockets.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	a, b := verbstest.New(t, dev, 4096), verbstest.New(t, dev, 4096)
	q := a.QP.(*core.QP)
	for _, n := range [][2]int{{1 << 12, 0}, {0, 1 << 12}} {
		if err := q.SetReadDepth(n[0], n[1]); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("SetReadDepth(%d, %d): %v", n[0], n[1], err)
		}
	}
	if err := q.SetReadDepth(2, 3); err != nil {
		t.Fatal(err)
	}
	verbstest.Connect(t, a, b, netip.MustParseAddrPort("127.0.0.1:0"))
	if p := a.QP.Params(); p.IRD != 2 || p.ORD != 3 {
		t.Errorf("IRD %d and ORD %d, want 2 and 3", p.IRD, p.ORD)
	}
	if p := b.QP.Params(); p.ORD != 2 {
		t.Errorf("the peer may have %d Reads outstanding, want 2", p.ORD)
	}
}
