package sim

import (
	"testing"

	"xwarp/bench/relay/impair"
	"xwarp/mpa/startup"
	"xwarp/tcp"
	"xwarp/tcp/tick"
)

// TestEmptyPool: the worker's memory for out-of-order bytes is used up. A connection whose FPDUs arrive aligned and in
// order needs none, and must not stop.
func TestEmptyPool(t *testing.T) {
	s := quietScenario(t, 3, 9000, impair.Config{Delay: 100 * us, Rate: 1e9, Queue: 1 << 20})
	cfg := tcp.Config{RcvSpace: 1 << 20, RcvSpaceMax: 1 << 20}
	c := newRDMA(s, rdmaConfig{
		ini: startup.Config{IRD: 8, ORD: 8, RTRs: startup.RTRRead}, window: 1 << 20, depth: 64,
		ops: 40, maxOp: 100_000,
		tcpA: cfg, tcpB: cfg, poolBytes: 1, poolRecords: 1,
	}, s.hosts[0], s.hosts[1])
	s.loads = append(s.loads, c)
	c.start()
	if err := s.world.Run(Epoch.Add(tick.Second), c.finished); err != nil {
		t.Fatal(err)
	}
	if !c.finished() {
		t.Errorf("after a second %d of %d and %d of %d operations are complete", c.a.acks,
			len(c.a.ops), c.b.acks, len(c.b.ops))
	}
}
