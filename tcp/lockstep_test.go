package tcp_test

import (
	"math/rand/v2"
	"testing"

	"xwarp/tcp"
	"xwarp/tcp/tick"
)

// lockstep runs two pipes with the same faults side by side, the second of which short has told to take a
// short way: they send the same segments, how many it returns, and their connections are in the same state
// after each step.
func lockstep(t *testing.T, seed uint64, config func(*rand.Rand) tcp.Config, short func(*pipe)) (
	p [2]*pipe, sent int) {
	t.Helper()
	var out [2][]tcp.Out
	for i := range p {
		p[i], _ = impairedPipe(t, seed, config)
		p[i].onSend = func(o *tcp.Out) {
			c := *o
			if p[1].runs {
				c.Run = tcp.RunNone // what PollNext alone says
			}
			out[i] = append(out[i], c)
		}
		p[i].cuts = true
	}
	short(p[1])
	p[0].connect()
	p[1].connect()
	end := p[0].now.Add(20 * 60 * tick.Minute)
	for step := 0; p[0].now < end && step < 100_000; step++ {
		more := p[0].step()
		if p[1].step() != more || len(out[0]) != len(out[1]) || p[0].now != p[1].now {
			t.Fatalf("seed %d, step %d: %d and %d segments", seed, step, len(out[0]), len(out[1]))
		}
		for i := range out[0] {
			if out[0][i] != out[1][i] {
				t.Fatalf("seed %d, step %d, segment %d:\n%+v\n%+v", seed, step, i, out[0][i],
					out[1][i])
			}
		}
		sent += len(out[0])
		out[0], out[1] = out[0][:0], out[1][:0]
		if !tcp.Same(&p[0].a.c, &p[1].a.c) || !tcp.Same(&p[0].b.c, &p[1].b.c) {
			t.Fatalf("seed %d, step %d: the connections differ\n%+v\n%+v\n%+v\n%+v", seed, step,
				p[0].a.c.Info(p[0].now), p[1].a.c.Info(p[1].now), p[0].b.c.Info(p[0].now),
				p[1].b.c.Info(p[1].now))
		}
		if !more {
			break
		}
	}
	if p[0].a.c.State() != tcp.Closed {
		t.Fatalf("seed %d: %v at the end", seed, p[0].a.c.State())
	}
	return p, sent
}
