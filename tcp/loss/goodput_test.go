package loss

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"xwarp/tcp/cc"
	"xwarp/tcp/tick"
)

var update = flag.Bool("update", false, "write testdata/goodput.golden again")

// goodput returns the mean rate in bytes per second over all seeds, and the retransmitted bytes as a share of total.
func goodput(t *testing.T, cfg Config, p path, total int) (rate, again float64) {
	const seeds = 3
	for seed := range uint64(seeds) {
		m := newSim(seed, cfg, p, total)
		m.check = false
		begin := m.now
		if err := m.run(3600 * tick.Second); err != nil {
			t.Fatal(err)
		}
		rate += float64(total) / (float64(m.now.Sub(begin)) / float64(tick.Second)) / seeds
		again += (float64(m.tx)/float64(total) - 1) / seeds
	}
	return rate, again
}

// TestGoodput compares the goodput for combinations of loss and round trip with the committed table, so that a change
// of recovery or congestion control shows as a difference.
func TestGoodput(t *testing.T) {
	const mss, rate = 1448, 12_500_000
	type cell struct{ rate, again float64 }
	columns := []struct {
		name string
		cfg  Config
	}{
		{"cubic/rack", Config{CC: cc.Config{MSS: mss}}},
		{"reno/rack", Config{CC: cc.Config{MSS: mss, Algorithm: cc.Reno}}},
		{"cubic/6675", Config{CC: cc.Config{MSS: mss}, Mode: SACK}},
		{"cubic/newreno", Config{CC: cc.Config{MSS: mss}, Mode: NoSACK}},
		{"cubic/paced", Config{CC: cc.Config{MSS: mss}, Pacing: true}},
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "goodput in kB/s (bytes sent again in %%), link %d kB/s, queue one "+
		"bandwidth-delay product but at least 20 segments\n%-8s %6s", rate/1000, "rtt", "loss")
	for _, c := range columns {
		fmt.Fprintf(&out, " %20s", c.name)
	}
	out.WriteByte('\n')
	table := map[string]cell{}
	for _, rtt := range []tick.Duration{50 * tick.Microsecond, ms, 20 * ms, 100 * ms} {
		for _, loss := range []float64{0, 0.001, 0.01, 0.03, 0.1, 0.3} {
			fmt.Fprintf(&out, "%6dus %6g", rtt/tick.Microsecond, loss)
			for _, c := range columns {
				cfg := c.cfg
				cfg.MinRTO, cfg.MaxAckDelay = 5*ms, 2*ms
				if c.cfg.Mode != NoSACK {
					cfg.Clock = Clock{Tick: ms}
				}
				p := path{rate: rate, delay: rtt / 2, loss: loss,
					queue: max(20*mss, int(int64(rtt)*rate/int64(tick.Second)))}
				r, a := goodput(t, cfg, p, 2_000_000)
				table[fmt.Sprintf("%s %v %v", c.name, rtt, loss)] = cell{r, a}
				fmt.Fprintf(&out, " %11.0f (%5.1f)", r/1000, a*100)
			}
			out.WriteByte('\n')
		}
	}
	file := filepath.Join("testdata", "goodput.golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), out.String()); d != "" {
		t.Errorf("goodput changed; if it is meant, run with -update and look at the diff:\n%s", d)
	}
	// These must hold for any table.
	at := func(name string, rtt tick.Duration, loss float64) cell {
		return table[fmt.Sprintf("%s %v %v", name, rtt, loss)]
	}
	if r := at("cubic/rack", ms, 0).rate; r < 0.85*rate {
		t.Errorf("%.0f bytes per second on a clean path of %d", r, rate)
	}
	if c, r := at("cubic/rack", 20*ms, 0.001).rate, at("reno/rack", 20*ms, 0.001).rate; c < r {
		t.Errorf("CUBIC %.0f, Reno %.0f", c, r)
	}
	for _, rtt := range []tick.Duration{ms, 20 * ms} {
		for _, loss := range []float64{0.01, 0.1} {
			if r, s := at("cubic/rack", rtt, loss), at("cubic/newreno", rtt, loss); r.rate < 0.95*
				s.rate {
				t.Errorf("rtt %d, loss %v: RACK %.0f, NewReno %.0f", rtt, loss, r.rate, s.rate)
			}
			if r := at("cubic/rack", rtt, loss); r.again > loss/(1-loss)+0.02 {
				t.Errorf("rtt %d, loss %v: %.1f %% sent again", rtt, loss, 100*r.again)
			}
		}
	}
}
