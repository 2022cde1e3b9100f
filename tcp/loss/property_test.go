package loss

import (
	"fmt"
	"testing"

	"xwarp/tcp/cc"
	"xwarp/tcp/tick"
)

// TestPaths sends over several kinds of bad paths with every mode and algorithm: all bytes arrive, records keep their
// boundaries, and the number of retransmissions is limited.
func TestPaths(t *testing.T) {
	const mss = 1448
	rtt := tick.Millisecond
	paths := map[string]path{
		"clean":     {delay: rtt / 2},
		"shallow":   {delay: rtt / 2, rate: 12_500_000, queue: 10 * mss},
		"deep":      {delay: rtt / 2, rate: 12_500_000, queue: 200 * mss},
		"loss1":     {delay: rtt / 2, loss: 0.01},
		"loss10":    {delay: rtt / 2, loss: 0.10},
		"loss30":    {delay: rtt / 2, loss: 0.30, ackLoss: 0.1},
		"reorder":   {delay: rtt / 2, reorder: 0.1, late: rtt / 5},
		"wild":      {delay: rtt / 2, reorder: 0.2, late: 2 * rtt},
		"duplicate": {delay: rtt / 2, dup: 0.1, loss: 0.02},
		"ackloss":   {delay: rtt / 2, ackLoss: 0.4},
		"marking":   {delay: rtt / 2, rate: 12_500_000, queue: 200 * mss, mark: 20 * mss},
		"all": {delay: rtt / 2, rate: 12_500_000, queue: 30 * mss, mark: 20 * mss, loss: 0.02,
			ackLoss: 0.05, reorder: 0.05, late: rtt, dup: 0.01},
	}
	for name, p := range paths {
		for mode := RACK; mode <= NoSACK; mode++ {
			for alg := cc.CUBIC; alg <= cc.DCTCP; alg++ {
				t.Run(fmt.Sprintf("%s/%d/%d", name, mode, alg), func(t *testing.T) {
					for seed := range uint64(4) {
						cfg := Config{CC: cc.Config{MSS: mss, Algorithm: alg}, Mode: mode,
							MinRTO: 5 * tick.Millisecond, MaxAckDelay: tick.Millisecond,
							Pacing: seed == 3}
						if seed%2 == 0 {
							cfg.Clock = Clock{Tick: 10 * tick.Microsecond, Offset: 0xffff0000}
						}
						m := newSim(seed, cfg, p, 300*mss+17)
						if seed == 1 {
							m.size = func() int { return 1 + m.rng.IntN(mss) }
						}
						if err := m.run(600 * tick.Second); err != nil {
							t.Fatalf("seed %d: %v", seed, err)
						}
						i := m.s.Info(m.now)
						// Each loss causes a few retransmissions at most; without SACK and after timeouts, a window may
						// be sent twice.
						if limit := int(float64(m.total)*(1+4*p.loss+3*p.reorder+2*p.ackLoss)) +
							300*mss; m.tx > limit {
							t.Errorf("seed %d: %d bytes sent for %d: %+v", seed, m.tx, m.total,
								i.Counters)
						}
						if (name == "clean" || name == "deep") && i.Counters.Timeouts > 0 {
							t.Errorf("seed %d: %d timeouts on a path without loss", seed,
								i.Counters.Timeouts)
						}
						if name == "clean" && i.Counters.Retransmitted > i.Counters.Probes {
							t.Errorf("seed %d: sent again without loss: %+v", seed, i.Counters)
						}
					}
				})
			}
		}
	}
}
