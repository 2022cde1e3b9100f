package cc

import (
	"math"
	"math/big"
	"testing"

	"xwarp/tcp/tick"
)

const (
	mss = 1000
	ms  = tick.Millisecond
)

// flow feeds a controller one round trip at a time, one acknowledgement per two segments.
type flow struct {
	c   Controller
	now tick.Time
	rtt tick.Duration
}

func newFlow(cfg Config, rtt tick.Duration) *flow {
	f := &flow{rtt: rtt, now: tick.Time(tick.Second)}
	cfg.MSS = mss
	f.c.Init(&cfg, f.now)
	return f
}

// round acknowledges one window, of which marked percent of the bytes were marked.
func (f *flow) round(marked int) {
	w := f.c.Cwnd()
	for n := 0; n < w; n += 2 * mss {
		a := min(2*mss, w-n)
		f.now = f.now.Add(f.rtt * tick.Duration(a) / tick.Duration(w))
		f.c.OnAck(&Ack{Now: f.now, Acked: a, Marked: a * marked / 100, RTT: f.rtt, SRTT: f.rtt,
			Round: n == 0, Limited: true, Grow: marked == 0})
	}
}

// lose reports a loss while the window is full, and completes the recovery at once.
func (f *flow) lose() {
	f.c.Save()
	f.c.OnLoss(f.c.Cwnd())
	f.c.SetCwnd(f.c.Ssthresh())
}

func TestCubeRoot(t *testing.T) {
	for _, x := range []uint64{0, 1, 7, 8, 9, 26, 27, 28, 1<<62 - 1, 1 << 62, math.MaxUint64} {
		y := cbrt(x)
		cube := func(v uint64) *big.Int {
			return new(big.Int).Exp(new(big.Int).SetUint64(v), big.NewInt(3), nil)
		}
		if v := new(big.Int).SetUint64(x); cube(y).Cmp(v) > 0 || cube(y+1).Cmp(v) <= 0 {
			t.Errorf("cbrt(%d) = %d", x, y)
		}
	}
	for y := uint64(1); y < 2000000; y += 997 {
		if cbrt(y*y*y) != y || cbrt(y*y*y-1) != y-1 {
			t.Errorf("cbrt around %d^3 is wrong", y)
		}
	}
}

// TestCubicCurve compares the integers with RFC 9438's formulas, equations 1 and 2.
//
//req:rfc9293-MAY-18
func TestCubicCurve(t *testing.T) {
	for _, segs := range []int{10, 100, 1000, 20000} {
		f := newFlow(Config{}, 100*ms)
		f.c.SetCwnd(segs * mss)
		f.lose()
		w := float64(segs)
		if got, want := f.c.Cwnd(), segs*mss*7/10; got != want {
			t.Fatalf("%d segments: after the loss %d bytes, want %d", segs, got, want)
		}
		q := &f.c.cubic
		q.startEpoch(f.c.Cwnd(), mss, f.now)
		k := math.Cbrt(w * 0.3 / 0.4)
		if got := float64(q.timeToMax()) / 1e9; math.Abs(got-k) > 0.001 {
			t.Errorf("%d segments: K = %v s, want %v", segs, got, k)
		}
		for _, x := range []float64{0, 0.1, 0.5, 0.9, 1, 1.1, 1.5, 2} {
			want := 0.4*math.Pow(x*k-k, 3) + w
			got := float64(q.window(tick.Duration(x*k*1e9), mss)) / mss
			if math.Abs(got-want) > 0.002*w+0.01 {
				t.Errorf("%d segments: W(%v K) = %v, want %v", segs, x, got, want)
			}
		}
	}
}

// TestCubicGrowth: after the time K the window is back at its size before the loss. Its growth is slow there, and then
// becomes faster again.
func TestCubicGrowth(t *testing.T) {
	f := newFlow(Config{}, 100*ms)
	f.c.SetCwnd(1000 * mss)
	f.lose()
	begin := f.now
	var at [3]int
	for f.now.Sub(begin) < 20*tick.Second {
		f.round(0)
		switch s := float64(f.now.Sub(begin)) / float64(tick.Second); {
		case s < 4.6:
			at[0] = f.c.Cwnd()
		case s < 9.1: // K = cbrt(1000*0.3/0.4) = 9.08
			at[1] = f.c.Cwnd()
		default:
			at[2] = f.c.Cwnd()
		}
	}
	for i, want := range []int{963, 1000, 1521} {
		if got := at[i] / mss; got < want*98/100 || got > want*102/100 {
			t.Errorf("phase %d: %d segments, want about %d", i, got, want)
		}
	}
	f.c.SetCwnd(900 * mss)
	wmax := f.c.cubic.wmax
	f.lose()
	if f.c.cubic.wmax >= 900*mss || wmax < 900*mss {
		t.Errorf("no fast convergence: W_max %d to %d", wmax, f.c.cubic.wmax)
	}
}

// TestRenoFriendly: with a short round trip CUBIC grows like AIMD(9/17, 0.7), and like Reno once the window is back at
// its size before the loss (RFC 9438, 4.3).
func TestRenoFriendly(t *testing.T) {
	f := newFlow(Config{}, ms)
	f.c.SetCwnd(100 * mss)
	f.lose()
	before := f.c.Cwnd()
	for range 34 {
		f.round(0)
	}
	if got := f.c.Cwnd() - before; got < 16*mss || got > 20*mss {
		t.Errorf("grew by %d bytes in 34 round trips, want 18 segments", got)
	}
	for f.c.Cwnd() < 101*mss {
		f.round(0)
	}
	before = f.c.Cwnd()
	for range 20 {
		f.round(0)
	}
	if got := f.c.Cwnd() - before; got < 18*mss || got > 22*mss {
		t.Errorf("grew by %d bytes in 20 round trips, want 20 segments", got)
	}
}

// TestReno checks the window of Reno (RFC 5681, 3.1) with appropriate byte counting (RFC 3465).
//
//req:rfc9293-MUST-19 rfc5681-3-2 rfc5681-3.1-1 rfc5681-3.1-8
func TestReno(t *testing.T) {
	f := newFlow(Config{Algorithm: Reno}, 10*ms)
	if f.c.Cwnd() != 10*mss {
		t.Fatalf("initial window %d", f.c.Cwnd())
	}
	f.c.OnAck(&Ack{Now: f.now, Acked: 10 * mss, Limited: true, Grow: true})
	if f.c.Cwnd() != 12*mss {
		t.Errorf("ten segments in one acknowledgement: window %d, want L = 2 segments more",
			f.c.Cwnd())
	}
	f.c.OnAck(&Ack{Now: f.now, Acked: 2 * mss, Grow: true})
	if f.c.Cwnd() != 12*mss {
		t.Error("grew although the window was not the limit")
	}
	for range 5 { // five small acknowledgements gain as much as one of all their bytes
		f.c.OnAck(&Ack{Now: f.now, Acked: mss / 5, Limited: true, Grow: true})
	}
	if f.c.Cwnd() != 13*mss {
		t.Errorf("one segment in five parts: window %d", f.c.Cwnd())
	}
	f.lose()
	if f.c.Cwnd() != 6500 {
		t.Errorf("after a loss %d", f.c.Cwnd())
	}
	for i := 1; i <= 4; i++ {
		f.round(0)
	}
	if got := f.c.Cwnd(); got < 10*mss || got > 10*mss+500 {
		t.Errorf("%d after four round trips, want four segments more", got)
	}
	f.c.OnTimeout(f.c.Cwnd(), true)
	if f.c.Cwnd() != mss || f.c.Ssthresh() < 5*mss || f.c.Ssthresh() > 5*mss+500 {
		t.Errorf("after a timeout %d, ssthresh %d", f.c.Cwnd(), f.c.Ssthresh())
	}
	th := f.c.Ssthresh()
	f.c.OnTimeout(mss, false)
	if f.c.Ssthresh() != th {
		t.Error("the second timeout of the same data changed ssthresh")
	}
	f.c.OnAck(&Ack{Now: f.now, Acked: 2 * mss, Limited: true, Grow: true})
	if f.c.Cwnd() != 2*mss {
		t.Errorf("after a timeout L is one segment: %d", f.c.Cwnd())
	}
	f.c.OnLoss(0)
	if f.c.Ssthresh() != 2*mss {
		t.Errorf("ssthresh %d, never less than two segments", f.c.Ssthresh())
	}
}

// TestHyStart checks RFC 9406: a longer round trip leads to conservative slow start, and after five rounds to
// congestion avoidance. If the round trip gets shorter again, the rise was noise, and slow start continues.
func TestHyStart(t *testing.T) {
	for _, noise := range []bool{false, true} {
		f := newFlow(Config{}, 40*ms)
		f.round(0)
		w := f.c.Cwnd()
		f.round(0)
		if f.c.Cwnd() != 2*w {
			t.Fatalf("slow start from %d to %d", w, f.c.Cwnd())
		}
		f.rtt = 46 * ms // threshold: 40/8 = 5 ms
		f.round(0)
		if f.c.State().Phase != Conservative {
			t.Fatal("the longer round trip is not noticed")
		}
		if noise {
			f.rtt = 40 * ms
			f.round(0)
			if f.c.State().Phase != SlowStart {
				t.Error("did not go back to slow start")
			}
			continue
		}
		w = f.c.Cwnd()
		f.round(0)
		if got := f.c.Cwnd(); got < w*5/4-2*mss || got > w*5/4+2*mss {
			t.Errorf("conservative slow start from %d to %d, want a quarter more", w, got)
		}
		for range 4 {
			f.round(0)
		}
		if s := f.c.State(); s.Phase != Avoidance || s.Ssthresh == Infinite {
			t.Errorf("after five rounds: %+v", s)
		}
	}
}

// TestHyStartWithoutSamples: an acknowledgement without a round trip, such as one of retransmitted segments, is not one
// of the eight samples (RFC 9406, 4.2), and not a sample of 0.
func TestHyStartWithoutSamples(t *testing.T) {
	f := newFlow(Config{}, 40*ms)
	f.round(0)
	f.round(0)
	f.rtt = 46 * ms
	for i := range 3 * hystartSamples {
		a := Ack{Now: f.now, Acked: mss, RTT: f.rtt, SRTT: f.rtt, Round: i == 0, Limited: true,
			Grow: true}
		if i%3 > 0 {
			a.RTT = 0
		}
		if f.c.OnAck(&a); (f.c.State().Phase == Conservative) != (i/3+1 >= hystartSamples) {
			t.Fatalf("%v after %d samples", f.c.State().Phase, i/3+1)
		}
	}
}

// TestPhaseAtThreshold: when a reduction has brought the window down to ssthresh, it grows as in congestion avoidance.
// RFC 5681, 3.1 permits slow start or congestion avoidance at ssthresh.
//
//req:rfc5681-4.3-3
func TestPhaseAtThreshold(t *testing.T) {
	f := newFlow(Config{Algorithm: Reno}, 40*ms)
	f.lose()
	if f.c.Cwnd() != f.c.Ssthresh() || f.c.State().Phase != Avoidance {
		t.Errorf("%+v", f.c.State())
	}
	w := f.c.Cwnd()
	if f.round(0); f.c.Cwnd() != w+mss {
		t.Errorf("from %d to %d in one round trip", w, f.c.Cwnd())
	}
}

// TestDCTCP: alpha follows the share of marked bytes, and a mark reduces the window by half of alpha (RFC 8257, 3.3 and
// 4.2).
//
//req:rfc9293-MAY-18
func TestDCTCP(t *testing.T) {
	f := newFlow(Config{Algorithm: DCTCP}, ms)
	f.c.SetCwnd(100 * mss)
	if f.c.State().Alpha != 65536 {
		t.Error("alpha does not begin at 1")
	}
	for _, c := range []struct{ marked, want int }{{100, 65536}, {50, 32768}, {25, 16384}, {0, 0}} {
		for range 250 {
			f.c.SetCwnd(100 * mss)
			f.round(c.marked)
		}
		if got := f.c.State().Alpha; got < c.want-400 || got > c.want+400 {
			t.Errorf("%d %% marked: alpha %d, want %d", c.marked, got, c.want)
		}
		f.c.SetCwnd(100 * mss)
		f.c.OnECN(100 * mss)
		if got, want := f.c.Ssthresh(), 100*mss-100*mss*c.want/65536/2; got < want-700 ||
			got > want+700 {
			t.Errorf("%d %% marked: window to %d, want %d", c.marked, got, want)
		}
	}
	f.c.SetCwnd(100 * mss)
	f.c.OnLoss(100 * mss)
	if f.c.Ssthresh() != 50*mss {
		t.Error("a loss is not answered like Reno's")
	}
}

//req:rfc5681-3.1-7
func TestReductions(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  Config
		ecn  bool
		want int
	}{
		{"RFC 9438, 4.6", Config{}, false, 70},
		{"RFC 8511, CUBIC", Config{}, true, 85},
		{"RFC 5681", Config{Algorithm: Reno}, false, 50},
		{"RFC 8511, Reno", Config{Algorithm: Reno}, true, 80},
		{"no ABE", Config{Algorithm: Reno, NoABE: true}, true, 50},
	} {
		f := newFlow(c.cfg, ms)
		f.c.SetCwnd(100 * mss)
		if c.ecn {
			f.c.OnECN(100 * mss)
		} else {
			f.c.OnLoss(100 * mss)
		}
		if f.c.Ssthresh() != c.want*mss {
			t.Errorf("%s: ssthresh %d, want %d segments", c.name, f.c.Ssthresh(), c.want)
		}
		f.c.OnLoss(20 * mss) // an application that used a fifth of the window
		if f.c.Ssthresh() > 14*mss {
			t.Errorf("%s: ssthresh %d after using 20 segments", c.name, f.c.Ssthresh())
		}
	}
}

func TestIdle(t *testing.T) {
	f := newFlow(Config{Algorithm: Reno}, ms)
	f.c.SetCwnd(100 * mss)
	f.c.OnIdle(199*ms, 200*ms)
	if f.c.Cwnd() != 100*mss {
		t.Error("restarted before one RTO")
	}
	f.c.OnIdle(400*ms, 200*ms)
	if f.c.Cwnd() != 25*mss {
		t.Errorf("after two RTO %d", f.c.Cwnd())
	}
	f.c.SetCwnd(100 * mss)
	f.lose()
	f.c.SetCwnd(400 * mss)
	f.c.OnIdle(400*ms, 200*ms)
	if got := f.c.Ssthresh(); got != 300*mss { // RFC 2861, 3.2: three quarters of the previous window
		t.Errorf("after two RTO the threshold is %d, want %d", got, 300*mss)
	}
	f.c.OnIdle(tick.Duration(math.MaxInt64), 1)
	if f.c.Cwnd() != 10*mss {
		t.Errorf("after a long time %d, want the restart window", f.c.Cwnd())
	}
	f = newFlow(Config{NoIdleRestart: true}, ms)
	f.c.SetCwnd(100 * mss)
	f.c.OnIdle(tick.Minute, ms)
	if f.c.Cwnd() != 100*mss {
		t.Error("restarted although told not to")
	}
}

func TestUndo(t *testing.T) {
	f := newFlow(Config{}, 100*ms)
	f.c.SetCwnd(100 * mss)
	f.lose()
	f.c.OnTimeout(70*mss, true)
	f.c.Undo(95*mss, mss)
	if f.c.Cwnd() != 100*mss || f.c.Ssthresh() != Infinite || f.c.cubic.wmax != 0 {
		t.Errorf("after undo %+v", f.c.State())
	}
	f.c.Undo(0, 0)
	if f.c.State().Undos != 1 {
		t.Error("undone twice")
	}
	f.lose()
	f.c.Undo(20*mss, mss) // little in flight: no burst
	if f.c.Cwnd() != 70*mss || f.c.Ssthresh() < 100*mss {
		t.Errorf("after undo with 20 segments in flight %+v", f.c.State())
	}
}

// TestExtremes: window, ssthresh, pacing rate and alpha stay in their bounds for extreme configurations and events.
func TestExtremes(t *testing.T) {
	for _, a := range []Algorithm{CUBIC, Reno, DCTCP} {
		for _, m := range []int{-1, 0, 1, 9000, 1 << 30} {
			var c Controller
			c.Init(&Config{Algorithm: a, MSS: m, InitialWindow: 1 << 40, ABCLimit: 1 << 40}, 0)
			now := tick.Time(0)
			for i := range 2000 {
				now = now.Add(tick.Duration(1) << (i % 50))
				c.OnAck(&Ack{Now: now, Acked: 1 << (i % 31), Marked: 1 << 40, RTT: 1 << (i % 40),
					SRTT: 1 << (i % 40), Round: i%3 == 0, Limited: true, Grow: true})
				switch i % 400 {
				case 100:
					c.Save()
					c.OnLoss(1 << (i % 31))
					c.SetCwnd(c.Ssthresh())
				case 200:
					c.OnECN(0)
				case 300:
					c.OnTimeout(1<<30, true)
				case 350:
					c.Undo(1<<30, 1<<30)
					c.SetMSS(64 << (i % 8))
				}
				if c.cwnd < 1 || c.cwnd > MaxWindow || c.ssthresh < 1 || c.PacingRate(1) < 0 ||
					c.alpha < 0 || c.alpha > dctcpOne {
					t.Fatalf("algorithm %d, MSS %d, step %d: %+v", a, m, i, c.State())
				}
			}
		}
	}
}

func BenchmarkOnAck(b *testing.B) {
	for i, name := range []string{"cubic", "reno", "dctcp"} {
		b.Run(name, func(b *testing.B) {
			f := newFlow(Config{Algorithm: Algorithm(i)}, ms)
			f.lose()
			a := Ack{Acked: 2 * mss, RTT: ms, SRTT: ms, Limited: true, Grow: true}
			for b.Loop() {
				f.now = f.now.Add(tick.Microsecond)
				a.Now = f.now
				f.c.OnAck(&a)
			}
		})
	}
}
