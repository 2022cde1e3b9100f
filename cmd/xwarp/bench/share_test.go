package bench

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"xwarp/bpf/needs"
)

func TestJain(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want float64
	}{
		{nil, 0}, {[]float64{0, 0}, 0}, {[]float64{5}, 1}, {[]float64{3, 3, 3, 3}, 1},
		{[]float64{7, 0, 0, 0}, 0.25}, {[]float64{1, 2, 3}, 36. / 42},
	} {
		if got := jainIndex(c.in); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("Jain(%v) = %v, want %v", c.in, got, c.want)
		}
	}
}

func TestMedianOfShareRounds(t *testing.T) {
	res := ShareResult{}
	for _, v := range [][2]float64{{10, 5}, {4, 4}, {9, 3}} {
		r := ShareRound{Ours: []float64{v[0], v[0]}, Kernel: []float64{v[1]}}
		r.judge(50)
		res.Rounds = append(res.Rounds, r)
	}
	res.median()
	m := &res.Median
	if m.Ratio != 2 || m.JainOurs != 1 || m.JainKernel != 1 || m.Used != 21./50 {
		t.Errorf("medians are %+v", m)
	}
}

func TestShareConfigErrors(t *testing.T) {
	for name, c := range map[string]ShareConfig{
		"negative": {Ours: -1, Kernel: 1}, "too many": {Ours: maxFlows, Kernel: 1},
		"rounds": {Rounds: maxShareRounds + 1}, "loss": {Loss: 2},
		"mark without rate": {MarkAbove: 1}, "time": {Warmup: -1},
	} {
		if err := c.Complete(); !errors.Is(err, errShareConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// shareForTest runs flows of both kinds. It checks that the kernel uses CUBIC and that all flows were measured, which
// holds on a machine of any speed.
func shareForTest(t *testing.T, cfg ShareConfig) *ShareResult {
	t.Helper()
	needs.XDP(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	res, err := shareLink(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if res.Congestion != "cubic" {
		t.Errorf("the kernel's congestion control is %q", res.Congestion)
	}
	for i, r := range res.Rounds {
		t.Logf("round %d: ratio %.3f, Jain %.4f (ours %.4f, kernel's %.4f), link used %.2f, lost "+
			"%d, dropped %d", i+1, r.Ratio, r.Jain, r.JainOurs, r.JainKernel, r.Used, r.Lost,
			r.Dropped)
		if len(r.Ours) != cfg.Ours || len(r.Kernel) != cfg.Kernel {
			t.Errorf("%d and %d flows were measured", len(r.Ours), len(r.Kernel))
		}
	}
	return res
}

// checkMoved checks that every flow of each round transferred data, and that the path lost packets. It does not
// compare the flows, whose shares depend on CPU scheduling; `xwarp bench share` does.
func checkMoved(t *testing.T, res *ShareResult) {
	t.Helper()
	for i, r := range res.Rounds {
		for kind, flows := range map[string][]float64{"ours": r.Ours, "the kernel's": r.Kernel} {
			for j, rate := range flows {
				if rate <= 0 {
					t.Errorf("round %d: flow %d of %s stood still", i+1, j, kind)
				}
			}
		}
		if r.Lost+r.Dropped == 0 {
			t.Errorf("round %d: nothing was lost: the test proves nothing", i+1)
		}
	}
}

// TestBottleneck: both kinds share a bottleneck of 40 Mbit/s with a queue of one round trip. Every flow must transfer
// data.
func TestBottleneck(t *testing.T) {
	checkMoved(t, shareForTest(t, ShareConfig{Ours: 4, Kernel: 4, Rate: 40e6,
		RTT:    20 * time.Millisecond,
		Warmup: 3 * time.Second, Duration: 6 * time.Second, Seed: 1}))
}

// TestWideArea runs both kinds at the same time over a path of 20 ms with 1 % loss. Every flow must transfer data.
func TestWideArea(t *testing.T) {
	checkMoved(t, shareForTest(t, ShareConfig{Ours: 12, Kernel: 12, Loss: 0.01,
		RTT:    20 * time.Millisecond,
		Warmup: 2 * time.Second, Duration: 6 * time.Second, Seed: 1}))
}
