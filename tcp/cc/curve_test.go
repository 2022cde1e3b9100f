package cc

import (
	"testing"

	"xwarp/tcp/tick"
)

// TestFastConvergence checks RFC 9438, 4.7: after a reduction from a window below the previous W_max, W_max is 0.85
// times that window. After one from W_max or above, W_max is the window.
func TestFastConvergence(t *testing.T) {
	for _, c := range []struct{ window, want int }{
		{99_999, 84_999}, {100_000, 100_000}, {100_001, 100_001}, {20_000, 17_000},
	} {
		f := newFlow(Config{}, ms)
		f.c.cubic.wmax = 100_000
		f.c.SetCwnd(c.window)
		f.c.OnLoss(c.window)
		if got := f.c.State().WMax; got != c.want || f.c.cubic.prior != c.window {
			t.Errorf("from %d: W_max %d, want %d; prior %d", c.window, got, c.want, f.c.cubic.prior)
		}
	}
}

// TestCubicEpoch: with a window at W_max or above, the curve begins where it is flat (RFC 9438, 4.2). Below, K is the
// time until the window is back at W_max. Time in which the window was not the limit does not count (5.8).
func TestCubicEpoch(t *testing.T) {
	for _, c := range []struct {
		window, wmax int
		k            tick.Duration
	}{{100_000, 100_000, 0}, {100_001, 100_001, 0}, {96_800, 100_000, 2 * tick.Second},
		{99_600, 100_000, tick.Second}} { // cbrt(3.2 / 0.4) and cbrt(0.4 / 0.4)
		q := cubic{wmax: 100_000}
		q.startEpoch(c.window, mss, 0)
		if q.wmax != c.wmax || q.timeToMax() != c.k {
			t.Errorf("from %d: W_max %d, K %v, want %d, %v", c.window, q.wmax, q.timeToMax(),
				c.wmax,
				c.k)
		}
		if d := q.window(0, mss) - c.window; d < 0 || d > 1 || q.window(c.k, mss) != c.wmax {
			t.Errorf("from %d: at the begin %d, after K %d", c.window, q.window(0, mss),
				q.window(c.k, mss))
		}
		q.shiftEpoch(-1)
		q.shiftEpoch(tick.Second)
		if q.epoch != tick.Time(tick.Second) {
			t.Errorf("the epoch is at %d", q.epoch)
		}
	}
	var q cubic
	q.shiftEpoch(tick.Second)
	if q.epoch != 0 {
		t.Error("a curve that did not begin was moved")
	}
	q.startEpoch(MaxWindow, mss, 0)
	for _, d := range []tick.Duration{64*tick.Second - 1, 64 * tick.Second, 1<<63 - 1} {
		if got := q.window(d, mss); got != MaxWindow {
			t.Errorf("after %v %d", d, got)
		}
	}
}

// TestCubicRegions checks RFC 9438, 4.3 to 4.5. While W_cubic is below W_est, the window is W_est. Otherwise each
// acknowledged segment adds its share of the distance to W_cubic one round trip ahead. The distance counts as 0 if
// negative, and as at most half of the window.
func TestCubicRegions(t *testing.T) {
	const window = 100_000
	for _, c := range []struct {
		name  string
		wmax  int
		age   tick.Duration // of the epoch
		acked int
		want  int
	}{
		// W_est grows by 9/17 of a segment for each window, 529 bytes, and W_cubic is flat.
		{"Reno-friendly, below W_max", window, 0, window, window + 529},
		{"a tenth of a window", window, 0, window / 10, window + 52},
		{"more than a window", window, 0, 2 * window, window + 529},
		// W_cubic is 0.4 * 5^3 = 50 segments above W_max after 5 s, as much as half of the window.
		{"convex", window, 5 * tick.Second, window, window + window/2},
		{"convex, a tenth", window, 5 * tick.Second, window / 10, window + window/20},
		{"convex, no more than half", window, 50 * tick.Second, window, window + window/2},
		{"convex, little", window, 2500 * ms, window, window + 6250},
	} {
		f := newFlow(Config{}, ms)
		f.c.cwnd, f.c.ssthresh = window, window
		f.c.cubic.prior, f.c.cubic.wmax = window+1000, c.wmax
		f.c.cubic.startEpoch(window, mss, f.now)
		f.c.OnAck(&Ack{Now: f.now.Add(c.age), Acked: c.acked, Limited: true, Grow: true})
		if got := f.c.Cwnd(); got < c.want-2 || got > c.want+2 {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
	// Once W_est is back where the last reduction began, it grows by a whole segment per window (4.3).
	for _, c := range []struct{ prior, want int }{{window, 1000}, {window - 1, 1000},
		{window + 1, 529}} {
		f := newFlow(Config{}, ms)
		f.c.cwnd, f.c.ssthresh, f.c.cubic.prior = window, window, c.prior
		f.c.OnAck(&Ack{Now: f.now, Acked: window, Limited: true, Grow: true})
		if got := f.c.Cwnd() - window; got < c.want-1 || got > c.want {
			t.Errorf("prior %d: grew by %d, want %d", c.prior, got, c.want)
		}
	}
	// Concave: 3.2 segments below W_max, K is 2 s, and after 1 s the curve is 0.4 segments below W_max. W_est is set to
	// 0.
	f := newFlow(Config{}, ms)
	f.c.cwnd, f.c.ssthresh, f.c.cubic.wmax = window-3200, window-3200, window
	f.c.cubic.startEpoch(window-3200, mss, f.now)
	f.c.cubic.est = 0
	f.c.OnAck(&Ack{Now: f.now.Add(900 * ms), SRTT: 100 * ms, Acked: window, Limited: true,
		Grow: true})
	if got := f.c.Cwnd(); got < window-402 || got > window-398 {
		t.Errorf("concave: %d, want %d", got, window-400)
	}
	w, count := f.c.Cwnd(), f.c.count // while the curve is below the window, the window stays (4.4)
	f.c.OnAck(&Ack{Now: f.now.Add(500 * ms), SRTT: 100 * ms, Acked: window, Limited: true,
		Grow: true})
	if f.c.Cwnd() != w || f.c.count != count {
		t.Errorf("%d, want %d: the curve is below it", f.c.Cwnd(), w)
	}
	// An acknowledged window adds the whole distance to the curve, even if that is one byte.
	f.c.cubic = cubic{started: true, epoch: f.now, wmax: w + 1}
	f.c.count = 0
	if f.c.OnAck(&Ack{Now: f.now, Acked: w, Limited: true, Grow: true}); f.c.Cwnd() != w+1 {
		t.Errorf("%d, want %d", f.c.Cwnd(), w+1)
	}
}

// TestHyStartThreshold checks RFC 9406, 4.2: slow start ends if the least round trip of eight samples rises by an
// eighth, limited to 4 to 16 ms. A later round trip below that one shows that the rise was noise.
func TestHyStartThreshold(t *testing.T) {
	for _, c := range []struct{ rtt, rise tick.Duration }{
		{ms, 4 * ms}, {32 * ms, 4 * ms}, {40 * ms, 5 * ms}, {128 * ms, 16 * ms},
		{300 * ms, 16 * ms},
	} {
		for _, less := range []tick.Duration{0, 1} {
			f := newFlow(Config{}, c.rtt)
			ack := func(round bool, rtt tick.Duration) Phase {
				f.c.OnAck(&Ack{Now: f.now, Acked: 1, RTT: rtt, Round: round})
				return f.c.State().Phase
			}
			for i := range 2 * hystartSamples {
				ack(i == hystartSamples, c.rtt)
			}
			ack(true, c.rtt+c.rise+1)
			for range hystartSamples - 2 {
				if got := ack(false, c.rtt+c.rise+1); got != SlowStart {
					t.Fatalf("%v after less than eight samples", got)
				}
			}
			want := Conservative
			if less > 0 {
				want = SlowStart
			}
			if got := ack(false, c.rtt+c.rise-less); got != want {
				t.Errorf("from %v to %v: %v, want %v", c.rtt, c.rtt+c.rise-less, got, want)
				continue
			}
			if less > 0 {
				continue
			}
			if got := ack(false, c.rtt+c.rise); got != Conservative {
				t.Errorf("as long as that: %v", got)
			}
			if got := ack(false, c.rtt+c.rise-1); got != SlowStart {
				t.Errorf("noise: %v", got)
			}
		}
	}
}

// TestHyStartRounds checks RFC 9406, 4.2: conservative slow start ends with its fifth round, and ssthresh becomes the
// window.
func TestHyStartRounds(t *testing.T) {
	f := newFlow(Config{}, 40*ms)
	f.c.hy.inCSS = true
	for i := 1; i <= cssRounds; i++ {
		f.c.OnAck(&Ack{Now: f.now, Acked: 4 * mss, Round: true, Limited: true, Grow: true})
		s := f.c.State()
		if i < cssRounds && (s.Phase != Conservative || s.Cwnd != (10+i)*mss) {
			t.Errorf("round %d: %v, window %d", i, s.Phase, s.Cwnd)
		}
		if i == cssRounds && (s.Phase != Avoidance || s.Ssthresh != (10+cssRounds-1)*mss) {
			t.Errorf("round %d: %v, ssthresh %d", i, s.Phase, s.Ssthresh)
		}
	}
}

// TestAlpha checks RFC 8257, 3.3 with the arithmetic of 4.2: once per round trip alpha loses a sixteenth of itself and
// gains a sixteenth of the share of marked bytes. An alpha too small to lose anything becomes 0 first.
func TestAlpha(t *testing.T) {
	for _, c := range []struct{ alpha, acked, marked, want int }{
		{dctcpOne, 1000, 0, dctcpOne * 15 / 16}, {dctcpOne, 1000, 1000, dctcpOne},
		{0, 1000, 1000, dctcpOne / 16}, {0, 1000, 500, dctcpOne / 32}, {1600, 1000, 0, 1500},
		{0, 1000, 2000, dctcpOne / 16}, {1600, 1000, -1000, 1500}, {16, 1000, 0, 15},
		{15, 1000, 0, 0}, {1600, 0, 0, 1600},
	} {
		f := newFlow(Config{Algorithm: DCTCP}, ms)
		f.c.alpha = c.alpha
		a := Ack{Now: f.now, Acked: c.acked, Marked: c.marked}
		if f.c.OnAck(&a); f.c.State().Alpha != c.alpha {
			t.Errorf("%+v: alpha %d within the round", c, f.c.State().Alpha)
		}
		a.Round = true
		if f.c.OnAck(&a); f.c.State().Alpha != c.want {
			t.Errorf("%+v: alpha %d", c, f.c.State().Alpha)
		}
		f.c.OnECN(0)
		want := 10*mss - 10*mss*c.want/(2*dctcpOne)
		if got := f.c.Ssthresh(); got < want-1 || got > want {
			t.Errorf("%+v: ssthresh %d, want %d", c, got, want)
		}
	}
}
