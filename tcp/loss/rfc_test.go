package loss

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"xwarp/tcp/cc"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

const ms = tick.Millisecond

// bench drives a Sender step by step. Segment i has the bytes from base+i*size up to but not including base+(i+1)*size.
type bench struct {
	*testing.T
	s    Sender
	now  tick.Time
	base seq.Num
	size int
}

func newBench(t *testing.T, cfg Config, rtt tick.Duration) *bench {
	b := &bench{T: t, now: tick.Time(10 * tick.Second), base: 0xfffff800, size: cfg.CC.MSS}
	b.s.Init(&cfg, b.base, b.now)
	b.s.SetHandshakeRTT(rtt, false)
	t.Cleanup(func() {
		v := reflect.ValueOf(b.s.Counters())
		for i := range v.NumField() {
			if n := v.Field(i).Uint(); n > 1<<62 {
				t.Errorf("%s was counted down: %d", v.Type().Field(i).Name, int64(n))
			}
		}
	})
	return b
}

func (b *bench) seg(i int) seq.Range { return seq.Of(b.base.Add(i*b.size), b.size) }

func (b *bench) segs(from, to int) seq.Range {
	return seq.Range{Start: b.seg(from).Start, End: b.seg(to).Start}
}

// send sends the new segments from up to to-1, regardless of the window.
func (b *bench) send(from, to int) {
	b.Helper()
	for i := from; i < to; i++ {
		if b.s.Nxt() != b.seg(i).Start {
			b.Fatalf("segment %d is not the next one", i)
		}
		b.s.Sent(b.seg(i), Data, false, b.now)
	}
}

// ack acknowledges the segments before i, and the given ranges selectively.
func (b *bench) ack(i int, sacks ...seq.Range) Result {
	b.Helper()
	return b.input(Ack{Ack: b.seg(i).Start}, sacks...)
}

func (b *bench) input(a Ack, sacks ...seq.Range) Result {
	b.Helper()
	a.NSACK = copy(a.SACK[:], sacks)
	r, err := ackTwice(&b.s, &a, b.now)
	if err != nil {
		b.Fatal(err)
	}
	if err := invariants(&b.s); err != nil {
		b.Fatal(err)
	}
	return r
}

// resend retransmits all records that the sender returns, and returns the indexes of the segments.
func (b *bench) resend() (out []int) {
	for range 1000 {
		tx, ok := b.s.Retransmit(b.now)
		if !ok {
			break
		}
		out = append(out, tx.Start.Diff(b.base)/b.size)
		b.s.Retransmitted(tx.Range, b.now)
	}
	return out
}

// fresh sends as many new segments as Permit allows, and returns their number.
func (b *bench) fresh() (n int) {
	for ; n < 1000 && b.s.Permit(b.now) > 0; n++ {
		b.s.Sent(seq.Of(b.s.Nxt(), b.size), Data, false, b.now)
	}
	return n
}

func (b *bench) wait(d tick.Duration) { b.now = b.now.Add(d) }

func (b *bench) want(what string, got, want any) {
	b.Helper()
	if d := cmp.Diff(want, got); d != "" {
		b.Errorf("%s: (-want +got)\n%s", what, d)
	}
}

// expire advances the time to the deadline, and checks which timers expire.
func (b *bench) expire(want Expired) {
	b.Helper()
	b.now = b.s.Deadline()
	if got := b.s.Expire(b.now); got != want {
		b.Fatalf("expired %b, want %b", got, want)
	}
	if err := invariants(&b.s); err != nil {
		b.Fatal(err)
	}
}

func conf(m Mode) Config {
	return Config{Mode: m, CC: cc.Config{MSS: 1000, Algorithm: cc.Reno}}
}

// TestRACKFigure1 is the example of RFC 8985, 3.4: a tail loss probe, losses of the tail that RACK finds, and a lost
// retransmission.
//
//req:rfc5681-4.3-4 rfc8985-4-3 rfc8985-6.2-2 rfc8985-6.2-3 rfc8985-7.3-4 rfc8985-9.3-1 rfc8985-9.3-4
func TestRACKFigure1(t *testing.T) {
	b := newBench(t, conf(RACK), 100*ms)
	b.send(0, 4)
	b.wait(100 * ms)
	b.ack(1) // event 2: P1, P2, P3 are lost
	b.expire(ExpiredTLP)
	if b.now != tick.Time(10*tick.Second).Add(300*ms) {
		t.Errorf("probe at %v, want two round trips after the acknowledgement", b.now)
	}
	if !b.s.NoNewData(b.now) {
		t.Fatal("no probe without new data")
	}
	b.want("3b", b.resend(), []int{3})
	b.wait(100 * ms)
	b.ack(1, b.seg(3)) // 5a
	b.want("5c", b.resend(), []int{1})
	b.want("state", b.s.State(), Recovery)
	// PRR sends one segment per segment delivered, so P2 follows P1 only with the next acknowledgement or timer.
	b.wait(1 * ms)
	b.expireUntilLost(2)
	b.wait(100 * ms)
	b.ack(1, b.segs(2, 4)) // 6: P1's retransmission was lost
	b.want("7b", b.resend(), []int{1})
	if b.s.count.LostRetransmits != 1 {
		t.Errorf("lost retransmissions %d", b.s.count.LostRetransmits)
	}
	b.wait(100 * ms)
	b.ack(4)
	b.want("state", b.s.State(), Open)
	b.want("pipe", b.s.Pipe(), 0)
}

// expireUntilLost checks that record i is the next one to be sent once the window has room.
func (b *bench) expireUntilLost(i int) {
	b.Helper()
	b.s.cc.SetCwnd(10 * b.size)
	b.want("5c, second", b.resend(), []int{i})
}

// TestLostInOrder checks RFC 6675, section 4, NextSeg (1): lost records are retransmitted in the order of the stream,
// also if the last one was retransmitted before. A peer that SACKs the bytes before a FIN but not the FIN never SACKs
// the whole last record. If that came first, its retransmission would use up the window in each recovery.
//
//req:rfc6675-4-5
func TestLostInOrder(t *testing.T) {
	cfg := conf(RACK)
	cfg.NoFRTO = true
	b := newBench(t, cfg, 100*ms)
	b.send(0, 6)
	b.expire(ExpiredTLP)
	b.s.NoNewData(b.now)
	b.want("probe", b.resend(), []int{5})
	b.expire(ExpiredRTO)
	b.want("head", b.resend(), []int{0})
	b.wait(100 * ms)
	b.ack(1)
	b.want("in order", b.resend(), []int{1, 2})
}

// TestRACKTimeout checks RFC 8985, 3.5: segments sent just before the timeout are not marked lost.
//
//req:rfc8985-6.3-1
func TestRACKTimeout(t *testing.T) {
	cfg := conf(RACK)
	cfg.NoTLP = true
	b := newBench(t, cfg, 100*ms)
	b.send(0, 1)
	b.wait(100 * ms)
	b.ack(1)
	b.send(1, 2)
	due := b.s.Deadline()
	b.now = due - tick.Time(10*ms)
	b.send(2, 4)
	b.now = due
	b.want("expired", b.s.Expire(b.now), ExpiredRTO)
	b.want("sent again", b.resend(), []int{1})
	b.wait(1 * ms)
	b.ack(2) // the original's acknowledgement: two new segments test whether it was spurious (F-RTO)
	b.want("sent again", b.resend(), []int(nil))
	if b.s.NoNewData(b.now) {
		t.Error("something else is to be sent again")
	}
	b.want("sent again", b.resend(), []int(nil))
	b.want("in flight", b.s.Pipe(), 2000)
}

// TestReorderWindow checks RFC 8985, 6.2 steps 3 and 4: once reordering is seen, the reordering window is a quarter of
// the least round trip, and a DSACK widens it.
//
//req:rfc8985-3.3-2 rfc8985-3.3-3 rfc8985-6.2-2
func TestReorderWindow(t *testing.T) {
	b := newBench(t, conf(RACK), 40*ms)
	b.send(0, 10)
	b.wait(40 * ms)
	b.ack(0, b.seg(1))
	b.want("one SACK", b.s.State(), Disorder)
	b.want("sent again", b.resend(), []int(nil))
	b.ack(2) // segment 0 arrives late
	b.want("seen", b.s.rack.reorderingSeen, true)
	b.ack(2, b.segs(3, 8)) // five segments above a hole: not lost within the window
	b.want("state", b.s.State(), Disorder)
	b.want("window", b.s.reorderWindow(), 10*ms)
	b.expire(ExpiredReorder)
	b.want("waited", b.now.Sub(tick.Time(10*tick.Second)), 50*ms)
	b.want("lost", b.resend(), []int{2})
	b.wait(30 * ms)
	b.ack(8)
	b.wait(10 * ms)
	b.ack(8, b.seg(2)) // DSACK: both arrived
	b.want("wider", b.s.reorderWindow(), 20*ms)
	b.want("undone", b.s.count.UndoDSACK, uint64(1))
}

// TestNextSeg checks RFC 6675, 5: recovery begins by bytes or by segments above a hole, retransmissions are in order,
// and a rescue retransmission follows.
//
//req:rfc5681-3.2-6 rfc6675-4-3 rfc6675-4-4 rfc6675-4-5 rfc6675-4-6 rfc6675-4-7 rfc6675-4-8 rfc6675-5-2 rfc6675-5-3
func TestNextSeg(t *testing.T) {
	b := newBench(t, conf(SACK), 100*ms)
	b.send(0, 10)
	b.wait(100 * ms)
	b.ack(0, b.seg(1))
	b.ack(0, b.segs(1, 3))
	b.want("two SACKed", b.s.State(), Disorder)
	b.want("limited transmit", b.fresh(), 2)
	b.ack(0, b.segs(1, 4)) // 3000 > 2 * SMSS bytes above: IsLost(0)
	b.want("state", b.s.State(), Recovery)
	b.want("lost", b.resend(), []int{0})
	b.ack(0, b.segs(5, 6), b.segs(1, 4))
	b.want("IsLost(4) with one segment above", b.resend(), []int(nil))
	b.ack(0, b.segs(5, 8), b.segs(1, 4))
	b.want("IsLost(4)", b.s.q.list[lost].n, 1)
	b.want("the pipe is at ssthresh", b.resend(), []int(nil))
	b.wait(100 * ms)
	b.ack(4, b.segs(5, 8))
	b.want("lost", b.resend(), []int{4})
	b.wait(100 * ms)
	b.ack(8)
	for b.s.Permit(b.now) > 0 && b.s.NoNewData(b.now) { // no new data: rule 4
		b.want("rescue", b.resend(), []int{11})
	}
	b.want("rescued once", b.s.rescue, b.s.recover)
	b.wait(100 * ms)
	b.ack(12)
	b.want("state", b.s.State(), Open)
	b.want("window", b.s.Cwnd(), b.s.Ssthresh())
}

// TestIsLostSmallSegments: a record is lost when three small segments above it are SACKed, although their bytes are
// fewer than two MSS.
//
//req:rfc6675-4-3
func TestIsLostSmallSegments(t *testing.T) {
	b := newBench(t, conf(SACK), 100*ms)
	b.size = 100
	b.send(0, 6)
	b.wait(100 * ms)
	b.ack(0, b.segs(1, 3))
	b.want("state", b.s.State(), Disorder)
	b.ack(0, b.segs(1, 4))
	b.want("lost", b.resend(), []int{0})
}

// TestSACKCase2And3 checks the SACKed bytes after each acknowledgement of the examples in RFC 2018, 7.
//
//req:rfc6675-4-1 rfc6675-5-1 rfc6675-5-4 rfc8985-4-2
func TestSACKCase2And3(t *testing.T) {
	b := newBench(t, conf(RACK), 100*ms)
	b.s.Init(&Config{CC: cc.Config{MSS: 500}}, 5000, b.now)
	b.base, b.size = 5000, 500
	b.send(0, 8)
	b.wait(100 * ms)
	for i := 2; i <= 8; i++ { // case 2: the first is dropped
		b.input(Ack{Ack: 5000}, seq.Range{Start: 5500, End: b.seg(i).Start})
		b.want("bytes", b.s.q.list[sacked].bytes, (i-1)*500)
	}
	c := newBench(t, conf(RACK), 100*ms)
	c.s.Init(&Config{CC: cc.Config{MSS: 500}}, 5000, c.now)
	c.base, c.size = 5000, 500
	c.send(0, 8)
	c.wait(100 * ms)
	at := func(from, to seq.Num) seq.Range { return seq.Range{Start: from, End: to} }
	for i, x := range [][]seq.Range{ // case 3: 2nd, 4th, 6th and 8th are dropped; then the 4th arrives, then the 2nd
		{at(6000, 6500)}, {at(7000, 7500), at(6000, 6500)}, {at(8000, 8500), at(7000, 7500),
			at(6000, 6500)},
		{at(6000, 7500), at(8000, 8500)},
	} {
		c.input(Ack{Ack: 5500}, x...)
		c.want("bytes", c.s.q.list[sacked].bytes, []int{500, 1000, 1500, 2000}[i])
	}
	c.input(Ack{Ack: 7500}, at(8000, 8500))
	c.want("bytes", c.s.q.list[sacked].bytes, 500)
	c.want("outstanding", c.s.Outstanding(), 1500)
}

// TestPRR is RFC 9937's first example: one segment of a window of 20 is lost, and ssthresh is half of the window. One
// segment is sent for every two that arrive, and the window ends at ssthresh.
//
//req:rfc5681-3.2-9 rfc5681-3.2-10 rfc5681-3.2-11 rfc5681-4.3-2 rfc5681-4.3-3 rfc6675-5-5 rfc8985-9.3-2
//req:rfc8985-9.3-3
func TestPRR(t *testing.T) {
	cfg := conf(RACK)
	cfg.CC.InitialWindow = 20
	b := newBench(t, cfg, 100*ms)
	b.send(0, 20)
	b.wait(100 * ms)
	var out []int // segments sent after each acknowledgement
	for i := 2; i <= 20; i++ {
		b.ack(0, b.segs(1, i))
		n := len(b.resend())
		out = append(out, n+b.fresh())
	}
	// Two segments by limited transmit, then the fast retransmission, then every other acknowledgement sends
	// one, until the pipe is at ssthresh.
	b.want("sent", out, []int{1, 1, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0})
	b.want("pipe", b.s.Pipe(), 10000)
	b.wait(100 * ms)
	b.ack(20)
	b.want("window is ssthresh", b.s.Cwnd(), 10000)
}

// TestReductionInBatch: a batch of acknowledgements ends with a loss, and nothing could be sent between them. The
// reduction starts from the full window, not from the bytes that are outstanding after the first acknowledgements of
// the batch.
//
//req:rfc5681-4.3-1
func TestReductionInBatch(t *testing.T) {
	b := newBench(t, Config{CC: cc.Config{MSS: 1000, InitialWindow: 20}}, 20*ms)
	b.want("first flight", b.fresh(), 20)
	b.wait(20 * ms)
	b.ack(8)
	b.ack(8, b.segs(9, 12))
	b.want("state", b.s.State(), Recovery)
	if got, least := b.s.cc.Ssthresh(), 14_000; got < least {
		t.Errorf("ssthresh is %d, want at least 0.7 of the window of 20 segments, %d", got, least)
	}
}

// TestReductionAppLimited: the window was not full, so the reduction starts from the outstanding bytes.
//
//req:rfc5681-3.2-7
func TestReductionAppLimited(t *testing.T) {
	b := newBench(t, Config{CC: cc.Config{MSS: 1000, InitialWindow: 20}}, 20*ms)
	b.send(0, 10)
	b.wait(20 * ms)
	b.ack(0, b.segs(1, 4))
	b.want("state", b.s.State(), Recovery)
	b.want("ssthresh", b.s.cc.Ssthresh(), 7000)
	b = newBench(t, conf(RACK), 20*ms)
	b.send(0, 5)
	b.s.Sent(seq.Of(b.s.Nxt(), 1), Data, false, b.now)
	b.wait(20 * ms)
	b.ack(0, b.segs(1, 5))
	b.want("half of what was outstanding", b.s.cc.Ssthresh(), 2500)
}

// TestMTUProbeLoss: the records of a lost path MTU probe are retransmitted, and the window stays. The loss of another
// segment still reduces the window.
func TestMTUProbeLoss(t *testing.T) {
	for _, mode := range []Mode{RACK, SACK, NoSACK} {
		b := newBench(t, Config{CC: cc.Config{MSS: 1000, InitialWindow: 20}, Mode: mode}, 20*ms)
		b.fresh()
		b.s.MTUProbe(b.segs(4, 7))
		b.wait(20 * ms)
		b.ack(4)
		window := b.s.cc.Cwnd()
		for i := 8; i <= 12; i++ {
			if mode == NoSACK {
				b.ack(4)
			} else {
				b.ack(4, b.segs(7, i))
			}
		}
		b.want("sent again", b.resend(), []int{4, 5, 6})
		b.want("ssthresh", b.s.cc.Ssthresh(), cc.Infinite)
		if got := b.s.cc.Cwnd(); got < window || b.s.State() == Recovery {
			t.Errorf("mode %d: window %d after %d, state %v", mode, got, window, b.s.State())
		}
	}
	b := newBench(t, Config{CC: cc.Config{MSS: 1000, InitialWindow: 20}}, 20*ms)
	b.fresh()
	b.s.MTUProbe(b.segs(4, 7))
	b.wait(20 * ms)
	b.ack(4, b.segs(7, 8), b.segs(9, 12))
	b.want("sent again", b.resend(), []int{4, 5, 6, 8})
	b.want("state", b.s.State(), Recovery)
}

// TestPacing: after the initial window, new segments are sent a few at a time, spread over the round trip. With a round
// trip below a millisecond they are not paced.
func TestPacing(t *testing.T) {
	b := newBench(t, Config{CC: cc.Config{MSS: 1000, InitialWindow: 10}, Pacing: true}, 100*ms)
	b.want("initial window", b.fresh(), 10)
	b.wait(100 * ms)
	b.ack(10)
	window := b.s.cc.Cwnd() / 1000
	var got []int
	for range 200 {
		got = append(got, b.fresh())
		if b.s.Pipe()+1000 > b.s.cc.Cwnd() {
			break
		}
		d := b.s.Deadline()
		if d <= b.now || d > b.now.Add(100*ms) {
			t.Fatalf("next segment %d ns from now", d.Sub(b.now))
		}
		b.now = d
		b.s.Expire(b.now)
	}
	if got[0] > pacingBurst+1 || len(got) < window/2 {
		t.Errorf("a window of %d segments left as %v", window, got)
	}
	b = newBench(t, Config{CC: cc.Config{MSS: 1000, InitialWindow: 10}, Pacing: true}, ms/2)
	b.fresh()
	b.wait(ms / 2)
	b.ack(10)
	if n, window := b.fresh(), b.s.cc.Cwnd()/1000; n != window {
		t.Errorf("%d of %d segments left at once", n, window)
	}
}

// TestLoneTimeout: a single outstanding segment times out. Its acknowledgement doubles the loss window (RFC 5681, 3.1).
// With Reno, ssthresh is half of the outstanding bytes, but at least two segments (equation 4). With CUBIC it is 0.7 of
// the window, although the segment did not fill it (RFC 9438, 4.6).
//
//req:rfc5681-3.1-10
func TestLoneTimeout(t *testing.T) {
	for _, c := range []struct {
		alg      cc.Algorithm
		ssthresh int
	}{{cc.Reno, 2000}, {cc.CUBIC, 7000}} {
		cfg := conf(RACK)
		cfg.CC.Algorithm, cfg.NoTLP = c.alg, true
		b := newBench(t, cfg, 100*ms)
		b.send(0, 1)
		b.expire(ExpiredRTO)
		b.want("head", b.resend(), []int{0})
		b.want("loss window", b.s.Cwnd(), 1000)
		b.wait(100 * ms)
		b.ack(1)
		b.want("window after the acknowledgement", b.s.Cwnd(), 2000)
		b.want("ssthresh", b.s.Ssthresh(), c.ssthresh)
	}
}

// TestDSACKOnceARound checks RFC 8985, 6.2 step 4: DSACKs widen the reordering window once per round trip.
//
//req:rfc8985-3.3-3
func TestDSACKOnceARound(t *testing.T) {
	b := newBench(t, conf(RACK), 40*ms)
	b.send(0, 10)
	b.wait(40 * ms)
	b.ack(0, b.seg(1))
	b.ack(2) // reordering
	b.ack(2, b.segs(4, 9))
	b.expire(ExpiredReorder)
	b.want("lost", b.resend(), []int{2})
	b.ack(2, b.segs(4, 8), b.seg(9))
	b.ack(3, b.segs(4, 8), b.seg(9))
	b.want("lost too", b.resend(), []int{3})
	b.wait(40 * ms)
	b.ack(8, b.seg(2))
	b.want("first", b.s.reorderWindow(), 20*ms)
	b.ack(8, b.seg(3))
	b.want("second of the round", b.s.reorderWindow(), 20*ms)
	b.ack(10)
	b.send(10, 20)
	b.wait(40 * ms)
	b.ack(12, b.segs(13, 18))
	b.expire(ExpiredReorder)
	b.want("lost", b.resend(), []int{12})
	b.wait(40 * ms)
	b.ack(18, b.seg(12))
	b.want("next round", b.s.reorderWindow(), 30*ms)
}
