package tcp_test

import (
	"math/rand/v2"
	"testing"

	"xwarp/tcp"
	"xwarp/tcp/cc"
	"xwarp/tcp/tick"
)

// lockstep runs two pipes with the same faults side by side. The first one uses no fast paths. They must send the same
// segments, and their connections must be in the same state after each step. It returns the second pipe and the number
// of segments.
func lockstep(t *testing.T, seed uint64, config func(*rand.Rand) tcp.Config, change func(*pipe)) (
	short *pipe, sent int) {
	t.Helper()
	var out [2][]tcp.Out
	var p [2]*pipe
	for i := range p {
		p[i], _ = impairedPipe(t, seed, config)
		p[i].onSend = func(o *tcp.Out) { out[i] = append(out[i], o.Plain()) }
		p[i].cuts, p[i].full = true, i == 0
		change(p[i])
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
	if p[0].runs > 0 {
		t.Fatalf("seed %d: a run, and a new Out each time", seed)
	}
	return p[1], sent
}

// runConfig is randomConfig with random values of the other options that influence the sent segments.
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

// TestFastPathsMatchSlowPaths: the fast path of Input, and the runs of Poll, give the same results as without them.
func TestFastPathsMatchSlowPaths(t *testing.T) {
	seeds := 300
	if testing.Short() {
		seeds = 60
	}
	withoutECN := func(r *rand.Rand) tcp.Config {
		c := runConfig(r)
		c.ECN = tcp.ECNMode(max(0, r.IntN(12)-8))
		return c
	}
	expected, acks, runs, sent := 0, 0, 0, 0
	for seed := range uint64(seeds) {
		for _, config := range []func(*rand.Rand) tcp.Config{runConfig, withoutECN} {
			p, n := lockstep(t, seed, config, func(*pipe) {})
			sent += n
			expected, acks, runs = expected+p.expected, acks+p.acks, runs+p.runs
		}
	}
	t.Logf("of %d segments %d with bytes and %d others were expected, %d in runs", sent, expected,
		acks, runs)
	if expected < seeds || acks < seeds || runs < sent/20 {
		t.Error("these are too few")
	}
}

// TestPollRunMatchesPoll: PollRun writes the same segments as Poll would one by one.
func TestPollRunMatchesPoll(t *testing.T) {
	inRuns, all := 0, 0
	for seed := range uint64(100) {
		p, n := lockstep(t, seed, runConfig, func(p *pipe) {
			p.a.records = nil
			p.b.recvMax, p.b.readGap, p.loss = 1<<17, 0, min(p.loss, 0.01)
			p.delay = []tick.Duration{tick.Microsecond, 10 * tick.Millisecond}[seed%2]
			p.jitter = min(p.jitter, p.delay)
			p.exchange(1<<19, 0)
		})
		inRuns, all = inRuns+p.inRuns, all+n
	}
	t.Logf("%d of %d segments by PollRun", inRuns, all)
	if inRuns < 1000 {
		t.Error("these are too few")
	}
}
