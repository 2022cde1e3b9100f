package sim

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"xwarp/bench/relay/impair"
	"xwarp/ddp/rdmap"
	"xwarp/engine/stack"
	"xwarp/mpa/startup"
	"xwarp/tcp"
	"xwarp/tcp/cc"
	"xwarp/tcp/loss"
	"xwarp/tcp/tick"
)

// maxGap is the longest allowed pause between two frames of an exchange. A longer one means that an end waits for a
// timer of the other. The round trip of the path is far shorter.
const maxGap = 5 * ms

// gaps watches the frames of a World for pauses.
type gaps struct {
	last    tick.Time
	longest tick.Duration
	at      tick.Duration // start of the longest pause, relative to Epoch
}

func (g *gaps) watch(s *scenario) {
	see := s.world.Tap
	g.last = s.world.Now()
	s.world.Tap = func(h *Host, d Direction, frame []byte, now tick.Time) {
		if pause := now.Sub(g.last); pause > g.longest {
			g.longest, g.at = pause, g.last.Sub(Epoch)
		}
		g.last = now
		see(h, d, frame, now)
	}
}

// sameOps makes e repeat an operation n times, always on the same memory.
func (e *rdmaEnd) sameOps(op rdmap.WROp, n, size int) {
	from, effect := e, area{e.peer, 0, nil}
	if op == rdmap.WRRead || op == rdmap.WRFetchAdd {
		from, effect.end = e.peer, e
	}
	effect.want = bytes.Clone(from.mem[:size])
	if op == rdmap.WRFetchAdd { // adds 0
		clear(from.mem[:size])
		clear(effect.want)
	}
	for i := range n {
		o := opOf(i, op, size)
		o.effect = effect
		if op == rdmap.WRSend {
			o.recv = len(e.peer.recvs)
			e.peer.recvs = append(e.peer.recvs, recvBuf{area: effect, n: size})
		}
		e.ops = append(e.ops, o)
	}
}

func opOf(i int, what rdmap.WROp, size int) op {
	o := op{recv: -1}
	o.wr = rdmap.SendWR{ID: uint64(i), Op: what, Flags: rdmap.Signaled,
		SGL: []rdmap.SGE{{Len: uint32(size)}}}
	return o
}

// oneByOne returns a connection on which one end has n operations, one outstanding at a time, and the other has none.
func oneByOne(s *scenario, dialer bool, op rdmap.WROp, n, size int) *rdmaConn {
	const window = 1 << 20
	conn := tcp.Config{RcvSpace: window, RcvSpaceMax: window, StretchAck: 8, AckDelay: 20 * us,
		Loss: loss.Config{CC: cc.Config{Algorithm: cc.CUBIC}, Pacing: true}}
	c := &rdmaConn{s: s, cfg: rdmaConfig{
		ini:    startup.Config{IRD: 8, ORD: 8, RTRs: startup.RTRRead, Markers: true},
		rsp:    startup.Config{Markers: true},
		answer: startup.Answer{IRD: 8, ORD: 8}, pack: true, window: window, depth: 1, tcpA: conn,
		tcpB: conn, poolBytes: 4 << 20, poolRecords: 1 << 12,
	}}
	c.a, c.b = c.end("a", s.hosts[0]), c.end("b", s.hosts[1])
	c.a.peer, c.b.peer, c.a.dials = c.b, c.a, true
	r := rand.New(rand.NewPCG(s.seed, 79))
	for _, e := range []*rdmaEnd{c.a, c.b} {
		e.fill(r, &layout{size: size})
		randomize(r, e.mem)
	}
	if dialer {
		c.a.sameOps(op, n, size)
	} else {
		c.b.sameOps(op, n, size)
	}
	s.loads = append(s.loads, c)
	return c
}

// TestOneByOne runs a thousand operations, one outstanding at a time. From the first SYN to the end of the connection,
// no end may wait for a timer of the other: there must be no long pause, and no acknowledgement by the delayed ACK
// timer.
func TestOneByOne(t *testing.T) {
	for _, c := range []struct {
		op    rdmap.WROp
		sizes []int
	}{
		{rdmap.WRWrite, []int{1, 64, 1400, 1448, 4096, 65536}},
		{rdmap.WRSend, []int{1, 64, 1400, 1448, 4096, 65536}},
		{rdmap.WRRead, []int{1, 64, 4096, 65536}},
		{rdmap.WRFetchAdd, []int{8}},
	} {
		for _, size := range c.sizes {
			for _, dialer := range []bool{true, false} {
				name := fmt.Sprintf("%v/%d/dialer=%v", c.op, size, dialer)
				t.Run(name, func(t *testing.T) { testOneByOne(t, dialer, c.op, size) })
			}
		}
	}
}

func testOneByOne(t *testing.T, dialer bool, op rdmap.WROp, size int) {
	s := quietScenario(t, uint64(size), 1500, impair.Config{Delay: 5 * us, Rate: 10e9,
		Queue: 1 << 20})
	var g gaps
	g.watch(s)
	x := oneByOne(s, dialer, op, 1000, size)
	x.start()
	var delayed uint64
	err := s.world.Run(Epoch.Add(100*tick.Second), func() bool {
		delayed = max(delayed, s.delayedAcks())
		return x.over()
	})
	if err == nil {
		err = x.verdict()
	}
	if err != nil {
		t.Fatal(err)
	}
	if g.longest > maxGap {
		t.Errorf("a pause of %v at %v", g.longest, g.at)
	}
	if delayed > 0 {
		t.Errorf("%d acknowledgements by the delayed ACK timer", delayed)
	}
}

// TestReceivedBeforeAbort: a Send that the peer has received completes, even if the peer aborts before the
// acknowledgement leaves.
func TestReceivedBeforeAbort(t *testing.T) {
	s := quietScenario(t, 1, 1500, impair.Config{Delay: 5 * us})
	s.severe = true
	x := oneByOne(s, true, rdmap.WRSend, 20, 64)
	copy(x.b.mem, x.a.mem[:64])
	x.b.sameOps(rdmap.WRSend, 19, 64) // they carry the acknowledgements of all but the last
	b := s.hosts[1]
	b.Each(func(now tick.Time) {
		if x.b.recvDone == 20 && x.b.closed == 0 && x.b.acks == 19 {
			x.b.iw.Abort(now)
			x.b.wake()
		}
	})
	x.start()
	if err := s.world.Run(Epoch.Add(tick.Second), x.over); err != nil {
		t.Fatal(err)
	}
	if x.b.recvDone != 20 || x.a.err == nil {
		t.Fatalf("%d messages received, error %v: the peer did not abort", x.b.recvDone, x.a.err)
	}
	if o := &x.a.ops[19]; !o.done || o.status != rdmap.Success {
		t.Errorf("the last Send, which was received: done %v, %v", o.done, o.status)
	}
}

// delayedAcks returns how many acknowledgements of current connections the delayed ACK timer sent.
func (s *scenario) delayedAcks() (n uint64) {
	for _, h := range s.hosts {
		h.Stack().Endpoints(func(e *stack.Endpoint) { n += e.Conn().Counters().DelayedAcks })
	}
	return n
}
