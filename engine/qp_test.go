package engine_test

import (
	"net/netip"
	"sync"
	"testing"

	"xwarp/engine"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/verbs"
)

// TestInfoWhileConnecting asks a queue pair how it is while it is being connected: for the race detector.
func TestInfoWhileConnecting(t *testing.T) {
	dev, err := engine.OpenKernel(engine.KernelConfig{})
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
					engine.Infos([]verbs.QP{a.QP, b.QP})
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
		for i, info := range engine.Infos([]verbs.QP{a.QP, b.QP}) {
			if info == nil {
				t.Errorf("nothing is known of queue pair %d", i)
			}
		}
		a.QP.Close()
		b.QP.Close()
	}
}
