package xdp_test

import (
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"time"

	"xwarp/bench/topo"
	"xwarp/bpf/needs"
	"xwarp/engine/host/ethtool"
	"xwarp/engine/testkit/stress"
)

// TestQueueStress opens and closes connections of a device with several queues, in both directions, while queues are
// added. The peer's kernel sends the frames of a connection on any queue. Frames on the queue of another worker must be
// handed over. Afterwards no state may be left in the devices.
func TestQueueStress(t *testing.T) {
	needs.XSK(t)
	needs.NetNS(t)
	tn, err := topo.New(topo.Options{Queues: 4, OffloadsA: topo.NoOffloads})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tn.Close() })
	queues := func(n uint32) { // ethtool -L NAME rx N
		t.Helper()
		set := func() error { return ethtool.SetQueues(tn.B.Link.Name, n) }
		if !eventually(func() bool { return tn.B.Do(set) == nil }) { // closed sockets block it for a while
			t.Errorf("the interface does not get %d queues", n)
		}
	}
	var over uint64
	for round := range *stressRounds {
		seed := *stressSeed + uint64(round)
		rnd := rand.New(rand.NewPCG(seed, 0))
		queues(2 + uint32(rnd.IntN(2)))
		da, db := kernelOn(t, tn.A), openOn(t, tn.B)
		there := stress.Config{Seed: seed, A: da, B: db, Lines: 8, Each: 6}
		there.At = netip.AddrPortFrom(tn.B.Addr4.Addr(), 0)
		back := stress.Config{Seed: ^seed, A: db, B: da, Lines: 8, Each: 6}
		back.At = netip.AddrPortFrom(tn.A.Addr4.Addr(), 0)
		if rnd.IntN(3) == 0 {
			there.Close, back.Close = db.Close, db.Close
		}
		var group sync.WaitGroup
		group.Go(func() {
			if err := stress.Run(back); err != nil {
				t.Error(err)
			}
		})
		after := time.Duration(rnd.IntN(int(200 * time.Millisecond)))
		group.Go(func() {
			time.Sleep(after) // probably with connections
			queues(4)
		})
		if err := stress.Run(there); err != nil {
			t.Error(err)
		}
		group.Wait()
		s, err := db.Stats()
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range s.Queues {
			over += q.Stack.HandedOver
		}
		nothingLeft(t, there.Close != nil, da, db.Device)
		if t.Failed() {
			t.Fatalf("again with -stress.seed %d", seed)
		}
	}
	if over == 0 {
		t.Error("no frame arrived on the queue of another worker: the test proves nothing")
	}
}
