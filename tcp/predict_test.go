package tcp_test

import (
	"math/rand/v2"
	"testing"

	"xwarp/tcp"
)

// TestPredicted: two pipes with the same faults, one of which takes what Predicted holds for by InputNext and
// FinishNext: they send the same segments, and their connections are in the same state after each step.
func TestPredicted(t *testing.T) {
	runs := uint64(300)
	if testing.Short() {
		runs = 60
	}
	predicted, acks, sent := 0, 0, 0
	for seed := range runs {
		p, n := lockstep(t, seed, func(r *rand.Rand) tcp.Config {
			c := runConfig(r)
			c.ECN = tcp.ECNMode(max(0, r.IntN(12)-8))
			return c
		}, func(p *pipe) { p.predict = true })
		sent += n
		predicted, acks = predicted+p[1].predicted, acks+p[1].acks
	}
	t.Logf("%d of %d segments were predicted, and %d acknowledgements", predicted, sent, acks)
	if predicted < int(runs) || acks < int(runs) {
		t.Errorf("%d of %d segments were predicted, and %d acknowledgements", predicted, sent, acks)
	}
}
