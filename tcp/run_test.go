package tcp_test

import (
	"math/rand/v2"
	"testing"

	"xwarp/tcp"
	"xwarp/tcp/cc"
	"xwarp/tcp/tick"
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

// TestRuns: two pipes with the same faults, one of which asks PollNext, send the same segments, and their connections are in the
// same state after each step.
func TestRuns(t *testing.T) {
	runs := uint64(300)
	if testing.Short() {
		runs = 60
	}
	next, sent := 0, 0
	for seed := range runs {
		var p [2]*pipe
		var out [2][]tcp.Out
		for i := range p {
			p[i], _ = impairedPipe(t, seed, runConfig)
			p[i].onSend = func(o *tcp.Out) {
				c := *o
				c.Run = tcp.RunNone
				out[i] = append(out[i], c)
			}
			p[i].runs, p[i].cuts = i == 1, true
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
