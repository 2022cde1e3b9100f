package engine

import "testing"

// TestDeal: connections that come at once go to the workers in turn, and later ones to whoever has fewest.
func TestDeal(t *testing.T) {
	k := &kernelDriver{workers: []*kernelWorker{{}, {}, {}}}
	for range 4 {
		seen := map[*kernelWorker]bool{}
		for range k.workers {
			seen[k.deal()] = true
		}
		if len(seen) != len(k.workers) {
			t.Fatalf("three connections at once have %d workers of %d", len(seen), len(k.workers))
		}
	}
	idle := k.workers[1]
	for _, w := range k.workers {
		w.enter(&kernelConn{})
		w.enter(&kernelConn{})
	}
	idle.leave(0)
	for range 6 {
		if k.deal() != idle {
			t.Fatal("a worker with more connections than another has the next one")
		}
	}
}
