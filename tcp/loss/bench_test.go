package loss

import (
	"testing"

	"xwarp/tcp/cc"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// steady is a sender in the middle of a transfer, with a constant number of segments in flight.
type steady struct {
	s    Sender
	now  tick.Time
	una  seq.Num
	size int
}

func newSteady(window int, cfg Config) *steady {
	x := &steady{size: 1448, now: tick.Time(tick.Second)}
	cfg.CC.MSS = x.size
	cfg.CC.InitialWindow = 1000
	x.s.Init(&cfg, 0, x.now)
	x.s.SetHandshakeRTT(100*tick.Microsecond, false)
	for range window {
		x.send()
	}
	return x
}

func (x *steady) send() {
	x.s.Sent(seq.Of(x.s.Nxt(), x.size), Data, false, x.now)
}

// pair acknowledges two segments and sends two new ones.
func (x *steady) pair() {
	x.now = x.now.Add(tick.Microsecond)
	x.una = x.una.Add(2 * x.size)
	a := Ack{Ack: x.una}
	x.s.Ack(&a, x.now)
	if x.s.Permit(x.now) >= 0 {
		x.send()
		x.send()
	}
}

// loss loses the first of n segments. The others are selectively acknowledged, and the first is retransmitted.
func (x *steady) loss(n int) {
	hole := x.una
	for i := 2; i <= n; i++ {
		x.now = x.now.Add(tick.Microsecond)
		a := Ack{Ack: hole, NSACK: 1,
			SACK: [4]seq.Range{{Start: hole.Add(x.size), End: hole.Add(i * x.size)}}}
		x.s.Ack(&a, x.now)
		for tx, ok := x.s.Retransmit(x.now); ok; tx, ok = x.s.Retransmit(x.now) {
			x.s.Retransmitted(tx.Range, x.now)
		}
	}
	x.now = x.now.Add(100 * tick.Microsecond)
	x.una = x.una.Add(n * x.size)
	a := Ack{Ack: x.una}
	x.s.Ack(&a, x.now)
	for range n {
		x.send()
	}
}

// TestNoAllocation: neither a steady transfer nor recovery allocates.
func TestNoAllocation(t *testing.T) {
	for _, m := range []Mode{RACK, SACK} {
		x := newSteady(200, Config{Mode: m})
		if n := testing.AllocsPerRun(1000, x.pair); n != 0 {
			t.Errorf("mode %d: %v allocations per acknowledgement", m, n)
		}
		if n := testing.AllocsPerRun(50, func() { x.loss(100) }); n != 0 {
			t.Errorf("mode %d: %v allocations per recovery", m, n)
		}
		if x.s.count.FastRecoveries == 0 {
			t.Error("no recovery took place")
		}
	}
}

// TestHostileSACK: a peer selectively acknowledges every other segment in a huge window, each one up to four times.
// Each segment is newly acknowledged once. A run of known segments is skipped in few steps.
func TestHostileSACK(t *testing.T) {
	const window = 1 << 16
	x := newSteady(window, Config{CC: cc.Config{Algorithm: cc.Reno}})
	x.now = x.now.Add(tick.Millisecond)
	visits := 0
	for i := 1; i < window; i += 2 {
		a := Ack{Ack: 0, NSACK: 4}
		for j := range a.SACK {
			k := max(1, i-2*j)
			a.SACK[j] = seq.Of(seq.Num(k*x.size), x.size)
		}
		x.s.Ack(&a, x.now)
		visits += x.s.ev.newSACK / x.size
	}
	if visits != window/2 || x.s.q.list[sacked].n != window/2 {
		t.Fatalf("%d segments newly acknowledged, %d on the list", visits, x.s.q.list[sacked].n)
	}
	// A block over the whole window must skip the known records instead of walking over each: count the steps.
	a := Ack{Ack: 0, NSACK: 1, SACK: [4]seq.Range{{Start: seq.Num(x.size), End: x.s.Nxt()}}}
	x.s.Ack(&a, x.now)
	for range 20 { // each call shortens the links between records
		x.s.q.skip(x.s.q.head + 1)
	}
	steps := 0
	for id := x.s.q.head + 1; id != x.s.q.tail; id = x.s.q.at(id).next {
		steps++
	}
	if steps > 4 {
		t.Errorf("%d steps over a run of %d segments", steps, window-1)
	}
	if err := invariants(&x.s); err != nil {
		t.Fatal(err)
	}
}

func BenchmarkSentAck(b *testing.B) {
	for _, c := range []struct {
		name   string
		window int
		cfg    Config
	}{{"cubic", 200, Config{}}, {"reno", 200, Config{CC: cc.Config{Algorithm: cc.Reno}}},
		{"cubic-40k", 40000, Config{}}, {"paced", 200, Config{Pacing: true}}} {
		b.Run(c.name, func(b *testing.B) {
			x := newSteady(c.window, c.cfg)
			b.ReportAllocs()
			for b.Loop() {
				x.pair()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(2*b.N), "ns/segment")
		})
	}
}

func BenchmarkRecovery(b *testing.B) {
	for _, m := range []Mode{RACK, SACK} {
		b.Run([]string{"rack", "6675"}[m], func(b *testing.B) {
			x := newSteady(200, Config{Mode: m})
			b.ReportAllocs()
			for b.Loop() {
				x.loss(200)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(200*b.N), "ns/segment")
		})
	}
}
