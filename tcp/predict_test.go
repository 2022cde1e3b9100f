package tcp_test

import (
	"math/rand/v2"
	"testing"

	"xwarp/tcp"
	"xwarp/tcp/tick"
)

// TestPredicted: two pipes with the same faults, one of which takes what Predicted holds for by InputNext and FinishNext: they send
// the same segments, and their connections are in the same state after each step.
func TestPredicted(t *testing.T) {
	runs := uint64(300)
	if testing.Short() {
		runs = 60
	}
	predicted, acks, sent := 0, 0, 0
	for seed := range runs {
		var p [2]*pipe
		var out [2][]tcp.Out
		for i := range p {
			p[i], _ = impairedPipe(t, seed, func(r *rand.Rand) tcp.Config {
				c := runConfig(r)
				c.ECN = tcp.ECNMode(max(0, r.IntN(12)-8))
				return c
			})
			p[i].onSend = func(o *tcp.Out) { out[i] = append(out[i], *o) }
			p[i].predict, p[i].cuts = i == 1, true
			p[i].connect()
		}
		end := p[0].now.Add(20 * 60 * tick.Minute)
		for step := 0; p[0].now < end && step < 100_000; step++ {
			more := p[0].step()
			if p[1].step() != more || len(out[0]) != len(out[1]) || p[0].now != p[1].now {
				t.Fatalf("seed %d, step %d: %d and %d segments", seed, step, len(out[0]), len(out[1]))
			}
			for i := range out[0] {
				if out[0][i] != out[1][i] {
					t.Fatalf("seed %d, step %d, segment %d:\n%+v\n%+v", seed, step, i, out[0][i], out[1][i])
				}
			}
			sent += len(out[0])
			out[0], out[1] = out[0][:0], out[1][:0]
			if !tcp.Same(&p[0].a.c, &p[1].a.c) || !tcp.Same(&p[0].b.c, &p[1].b.c) {
				t.Fatalf("seed %d, step %d: the connections differ\n%+v\n%+v\n%+v\n%+v", seed, step,
					p[0].a.c.Info(p[0].now), p[1].a.c.Info(p[1].now), p[0].b.c.Info(p[0].now), p[1].b.c.Info(p[1].now))
			}
			if !more {
				break
			}
		}
		if p[0].a.c.State() != tcp.Closed {
			t.Fatalf("seed %d: %v at the end", seed, p[0].a.c.State())
		}
		predicted, acks = predicted+p[1].predicted, acks+p[1].acks
	}
	t.Logf("%d of %d segments were predicted, and %d acknowledgements", predicted, sent, acks)
	if predicted < int(runs) || acks < int(runs) {
		t.Errorf("%d of %d segments were predicted, and %d acknowledgements", predicted, sent, acks)
	}
}
