package cc

import (
	"testing"

	"xwarp/tcp/tick"
)

const inf = Infinite

// TestConfigBounds: Init limits configured values to what the arithmetic and the RFCs allow. The defaults are an
// initial window of ten segments (RFC 6928), and an L of 2 (RFC 3465), or of 8 with HyStart++ (RFC 9406).
//
//req:rfc5681-3.1-2 rfc5681-3.1-6
func TestConfigBounds(t *testing.T) {
	for _, c := range []struct {
		name          string
		cfg           Config
		mss, iw, most int
		grown         int // segments added by an acknowledgement of 100; 0: not checked
	}{
		{"nothing said", Config{MSS: 1000}, 1000, 10_000, MaxWindow, 8},
		{"Reno", Config{MSS: 1000, Algorithm: Reno}, 1000, 10_000, MaxWindow, 2},
		{"DCTCP", Config{MSS: 1000, Algorithm: DCTCP}, 1000, 10_000, MaxWindow, 2},
		{"no HyStart++", Config{MSS: 1000, NoHyStart: true}, 1000, 10_000, MaxWindow, 2},
		{"L of 1", Config{MSS: 1000, ABCLimit: 1}, 1000, 10_000, MaxWindow, 1},
		{"L below 0", Config{MSS: 1000, ABCLimit: -1}, 1000, 10_000, MaxWindow, 8},
		{"least MSS", Config{MSS: minMSS}, minMSS, 10 * minMSS, MaxWindow, 8},
		{"below it", Config{MSS: minMSS - 1}, minMSS, 10 * minMSS, MaxWindow, 8},
		{"largest MSS", Config{MSS: maxMSS}, maxMSS, 10 * maxMSS, MaxWindow, 8},
		{"above it", Config{MSS: maxMSS + 1}, maxMSS, 10 * maxMSS, MaxWindow, 8},
		{"window of 1", Config{MSS: 1000, InitialWindow: 1}, 1000, 1000, MaxWindow, 8},
		{"window below 0", Config{MSS: 1000, InitialWindow: -1}, 1000, 10_000, MaxWindow, 8},
		{"window of 1000", Config{MSS: 100, InitialWindow: 1000}, 100, 100_000, MaxWindow, 8},
		{"window of 1001", Config{MSS: 100, InitialWindow: 1001}, 100, 100_000, MaxWindow, 8},
		{"most 1", Config{MSS: 1000, MaxWindow: 1}, 1000, 2000, 2000, 0},
		{"most 2001", Config{MSS: 1000, MaxWindow: 2001}, 1000, 2001, 2001, 0},
		{"most 10001", Config{MSS: 1000, MaxWindow: 10_001}, 1000, 10_000, 10_001, 0},
		{"most below 0", Config{MSS: 1000, MaxWindow: -1}, 1000, 10_000, MaxWindow, 8},
		{"more", Config{MSS: 1000, MaxWindow: MaxWindow + 1}, 1000, 10_000, MaxWindow, 8},
	} {
		var x Controller
		x.Init(&c.cfg, 0)
		if x.Cwnd() != c.iw || x.Ssthresh() != Infinite {
			t.Errorf("%s: window %d, want %d, ssthresh %d", c.name, x.Cwnd(), c.iw, x.Ssthresh())
		}
		x.OnAck(&Ack{Acked: 100 * c.mss, Limited: true, Grow: true})
		if got := x.Cwnd(); got != min(c.iw+c.grown*c.mss, c.most) && c.grown > 0 {
			t.Errorf("%s: grew from %d to %d, want %d segments", c.name, c.iw, got, c.grown)
		}
		x.SetCwnd(1 << 40)
		if got := x.Cwnd(); got != c.most {
			t.Errorf("%s: at most %d, want %d", c.name, got, c.most)
		}
		x.SetCwnd(0)
		if got := x.Cwnd(); got != c.mss {
			t.Errorf("%s: at least %d, want a segment of %d", c.name, got, c.mss)
		}
	}
}

// TestSetMSS: the window keeps its size in bytes. The limit of byte counting and the restart window keep theirs in
// segments.
func TestSetMSS(t *testing.T) {
	f := newFlow(Config{Algorithm: Reno}, ms)
	f.c.SetMSS(500)
	if f.c.Cwnd() != 10*mss {
		t.Errorf("window %d", f.c.Cwnd())
	}
	f.c.OnAck(&Ack{Now: f.now, Acked: 10 * mss, Limited: true, Grow: true})
	if f.c.Cwnd() != 11*mss {
		t.Errorf("window %d, want two segments of 500 more", f.c.Cwnd())
	}
	f.c.OnIdle(tick.Second, ms)
	if f.c.Cwnd() != 5*mss {
		t.Errorf("restart window %d, want ten segments of 500", f.c.Cwnd())
	}
	f.c.SetCwnd(500)
	f.c.SetMSS(1 << 20)
	if f.c.Cwnd() != maxMSS {
		t.Errorf("window %d, want one segment of the largest", f.c.Cwnd())
	}
	f.c.LoseSYN() // RFC 5681, 3.1
	f.c.SetCwnd(1 << 20)
	f.c.OnIdle(tick.Second, ms)
	if f.c.Cwnd() != maxMSS {
		t.Errorf("restart window %d after a lost SYN, want one segment", f.c.Cwnd())
	}
}

// TestPacingRate: a window below half of ssthresh is paced at twice the window per round trip, a larger one at 1.2
// times the window. Without a round trip time the rate is 0.
func TestPacingRate(t *testing.T) {
	for _, c := range []struct {
		window, ssthresh int
		srtt             tick.Duration
		want             int
	}{
		{10_000, inf, 0, 0}, {10_000, inf, -1, 0}, {10_000, inf, tick.Second, 20_000},
		{10_000, inf, 100 * ms, 200_000}, {10_000, 20_002, tick.Second, 20_000},
		{10_000, 20_000, tick.Second, 12_000}, {10_000, 10_000, tick.Second, 12_000},
		{1000, 10_000, 3000 * tick.Second, 1},
	} {
		f := newFlow(Config{}, ms)
		f.c.cwnd, f.c.ssthresh = c.window, c.ssthresh
		if got := f.c.PacingRate(c.srtt); got != c.want {
			t.Errorf("%d of %d in %v: %d bytes per second, want %d", c.window, c.ssthresh, c.srtt,
				got, c.want)
		}
	}
}

// TestGrowth checks RFC 5681, 3.1: up to ssthresh the window grows by the acknowledged bytes, from there on by a
// segment for each acknowledged window. The bytes of an acknowledgement beyond ssthresh count towards such a window,
// but at most one window's bytes.
//
//req:rfc5681-3.1-1 rfc5681-3.1-8 rfc5681-3.1-9
func TestGrowth(t *testing.T) {
	for _, c := range []struct {
		name             string
		window, ssthresh int
		acked            []int
		want             int
	}{
		{"slow start", 10_000, 20_000, []int{2000, 1}, 12_001},
		{"a byte below ssthresh", 10_000, 12_001, []int{2000}, 12_000},
		{"to ssthresh", 10_000, 12_000, []int{2000, 11_999}, 12_000},
		{"a window behind it", 10_000, 12_000, []int{2000, 11_999, 1}, 13_000},
		{"over it", 10_000, 11_000, []int{2000, 9999}, 11_000},
		{"and a window", 10_000, 11_000, []int{2000, 10_000}, 12_000},
		{"a window less a byte", 10_000, 10_000, []int{5000, 4999}, 10_000},
		{"a window", 10_000, 10_000, []int{5000, 5000}, 11_000},
		{"no more than a segment", 10_000, 10_000, []int{30_000, 10_999}, 11_000},
		{"what is over counts", 10_000, 10_000, []int{9999, 10_000, 1001}, 12_000},
		{"nothing", 10_000, 10_000, []int{9999, 0, -1}, 10_000},
	} {
		f := newFlow(Config{Algorithm: Reno}, ms)
		f.c.cwnd, f.c.ssthresh = c.window, c.ssthresh
		for _, n := range c.acked {
			f.c.OnAck(&Ack{Now: f.now, Acked: n, Limited: true, Grow: true})
			f.c.OnAck(&Ack{Now: f.now, Acked: n, Limited: true}) // in recovery
			f.c.OnAck(&Ack{Now: f.now, Acked: n, Grow: true})    // application limited
		}
		if got := f.c.Cwnd(); got != c.want {
			t.Errorf("%s: from %d to %d, want %d", c.name, c.window, got, c.want)
		}
	}
}

// TestBasis checks the bytes from which a reduction computes ssthresh (RFC 5681, equation 4; RFC 7661, 4.4.1): the
// window if at most one more segment fitted into it, else the outstanding bytes. ssthresh is at least two segments. A
// timeout with CUBIC always computes it from the window.
//
//req:rfc5681-3.1-7 rfc5681-3.1-10
func TestBasis(t *testing.T) {
	for _, c := range []struct {
		flight     int
		reno       int // ssthresh
		cubic, ecn int
	}{
		{10_001, 5000, 7000, 8500}, {10_000, 5000, 7000, 8500}, {9000, 5000, 7000, 8500},
		{8999, 4499, 6299, 7649}, {4002, 2001, 2801, 3401}, {3999, 2000, 2799, 3399},
		{2858, 2000, 2000, 2429}, {2352, 2000, 2000, 2000}, {0, 2000, 2000, 2000},
	} {
		for _, x := range []struct {
			name string
			alg  Algorithm
			f    func(c *Controller)
			want int
		}{
			{"Reno, loss", Reno, func(x *Controller) { x.OnLoss(c.flight) }, c.reno},
			{"Reno, timeout", Reno, func(x *Controller) { x.OnTimeout(c.flight, true) }, c.reno},
			{"CUBIC, loss", CUBIC, func(x *Controller) { x.OnLoss(c.flight) }, c.cubic},
			{"CUBIC, mark", CUBIC, func(x *Controller) { x.OnECN(c.flight) }, c.ecn},
			{"CUBIC, timeout", CUBIC, func(x *Controller) { x.OnTimeout(c.flight, true) }, 7000},
			{"again", Reno, func(x *Controller) { x.OnTimeout(c.flight, false) }, inf},
		} {
			f := newFlow(Config{Algorithm: x.alg}, ms)
			if x.f(&f.c); f.c.Ssthresh() != x.want {
				t.Errorf("%s with %d of 10000 in flight: ssthresh %d, want %d", x.name, c.flight,
					f.c.Ssthresh(), x.want)
			}
		}
	}
}

// TestCautious checks RFC 3465, 2.3: after a timeout, L is one segment until recovery is over.
func TestCautious(t *testing.T) {
	f := newFlow(Config{Algorithm: Reno}, ms)
	f.c.OnTimeout(10*mss, true)
	a := Ack{Now: f.now, Acked: 2 * mss, Limited: true, Grow: true}
	f.c.OnAck(&a)
	if f.c.Cwnd() != 2*mss {
		t.Errorf("in recovery %d", f.c.Cwnd())
	}
	f.c.Recovered()
	f.c.OnAck(&a)
	if f.c.Cwnd() != 4*mss {
		t.Errorf("behind it %d", f.c.Cwnd())
	}
}

// TestIdleBounds checks RFC 2861, 3.2, and RFC 5681, 4.1: the window halves for each whole RTO of idle time, down to
// the restart window, but never grows. If there was congestion before, ssthresh becomes at least three quarters of the
// window before the idle time.
func TestIdleBounds(t *testing.T) {
	const rto = 200 * ms
	for _, c := range []struct {
		window, ssthresh int
		idle, rto        tick.Duration
		want, kept       int
	}{
		{100_000, inf, rto - 1, rto, 100_000, inf}, {100_000, inf, rto, rto, 50_000, inf},
		{100_000, 9000, rto - 1, rto, 100_000, 9000}, {100_000, 9000, rto, rto, 50_000, 75_000},
		{100_000, 75_001, 2*rto - 1, rto, 50_000, 75_001},
		{100_000, 9000, 2 * rto, rto, 25_000, 75_000},
		{100_000, inf, 4 * rto, rto, 10_000, inf}, {9000, inf, rto, rto, 9000, inf},
		{19_998, inf, rto, rto, 10_000, inf}, {20_002, inf, rto, rto, 10_001, inf},
		{100_000, inf, rto, 0, 100_000, inf}, {100_000, inf, 64 * rto, rto, 10_000, inf},
	} {
		f := newFlow(Config{Algorithm: Reno}, ms)
		f.c.cwnd, f.c.ssthresh = c.window, c.ssthresh
		f.c.OnIdle(c.idle, c.rto)
		if f.c.Cwnd() != c.want || f.c.Ssthresh() != c.kept {
			t.Errorf("%+v: window %d, ssthresh %d", c, f.c.Cwnd(), f.c.Ssthresh())
		}
	}
}

// TestUndoBounds checks RFC 4015, 3.4: Undo restores the window up to the bytes in flight plus a burst. The burst is
// the initial window, or the bytes just acknowledged if these are more. Slow start restores the rest.
func TestUndoBounds(t *testing.T) {
	for _, c := range []struct{ flight, acked, want, ssthresh int }{
		{90_000, 0, 100_000, inf}, {89_999, 0, 99_999, inf}, {88_000, 12_000, 100_000, 30_000},
		{90_000, 0, 100_000, 30_000}, {89_999, 0, 99_999, 30_000}, {0, 10_001, 50_000, 30_000},
		{50_000, 10_001, 60_001, 30_000}, {50_000, 9999, 60_000, 30_000},
		{200_000, 0, 100_000, 30_000},
	} {
		f := newFlow(Config{Algorithm: Reno}, ms)
		f.c.cwnd, f.c.ssthresh = 100_000, c.ssthresh
		f.lose()
		f.c.Undo(c.flight, c.acked)
		ssthresh := c.ssthresh
		if c.want < 100_000 {
			ssthresh = max(ssthresh, 100_000)
		}
		if f.c.Cwnd() != c.want || f.c.Ssthresh() != ssthresh {
			t.Errorf("%+v: window %d, ssthresh %d, want %d", c, f.c.Cwnd(), f.c.Ssthresh(),
				ssthresh)
		}
	}
}
