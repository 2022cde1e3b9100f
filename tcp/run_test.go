package tcp_test

import (
	"math/rand/v2"
	"testing"

	"xwarp/tcp"
	"xwarp/tcp/cc"
)

// runConfig is randomConfig with everything else that has a say in what leaves.
func runConfig(r *rand.Rand) tcp.Config {
	c := randomConfig(r)
	c.ProbeMTU = r.IntN(2) == 0
	if c.ProbeMTU && r.IntN(2) == 0 {
		c.PathMTU = max(c.MTU/2, 1280)
	}
	c.Loss.Pacing, c.Loss.NoTLP, c.Loss.NoFRTO = r.IntN(2) == 0, r.IntN(4) == 0, r.IntN(4) == 0
	c.Loss.CC.Algorithm = cc.Algorithm(r.IntN(3))
	c.Loss.CC.InitialWindow = r.IntN(2) * 60
	return c
}

// TestRuns: two pipes with the same faults, one of which asks PollNext, send the same segments, and their
// connections are in the same state after each step.
func TestRuns(t *testing.T) {
	runs := uint64(300)
	if testing.Short() {
		runs = 60
	}
	next, sent := 0, 0
	for seed := range runs {
		p, n := lockstep(t, seed, runConfig, func(p *pipe) { p.runs = true })
		sent += n
		if p[0].next > 0 {
			t.Fatalf("seed %d: Poll gave a segment of a run", seed)
		}
		next += p[1].next
	}
	t.Logf("%d of %d segments by PollNext alone", next, sent)
	if next < sent/20 {
		t.Errorf("%d of %d segments by PollNext alone", next, sent)
	}
}
