package sim

import (
	"math/rand/v2"
	"sync/atomic"
)

// waysSeen counts, over all scenarios, segments of blocks, and frames received on second queues.
var waysSeen seen

type seen struct{ segments, relayed atomic.Uint64 }

type waysTried struct{ Segments, Relayed uint64 }

func (s *seen) read() waysTried { return waysTried{s.segments.Load(), s.relayed.Load()} }

// transmit draws whether a host sends blocks, and whether it has a second queue, and sets that in cfg.
func (w *wide) transmit(cfg *HostConfig, i int) {
	drawn := w.rnd
	defer func() { w.rnd = drawn }()
	w.draws("transmission of " + cfg.Name)
	if w.rnd.IntN(4) == 0 && !w.off("blocks of "+cfg.Name) {
		w.blocks(cfg, rand.New(rand.NewPCG(w.seed, uint64(i)+400)), &waysSeen.segments)
		w.blocky = true
	}
	w.draws("second queue of " + cfg.Name)
	cfg.SecondQueue = w.one(5) && !w.off("second queue of "+cfg.Name)
}
