package sim

import (
	"flag"
	"fmt"
	"math"
	"sync/atomic"
	"testing"

	"xwarp/bench/relay/impair"
	"xwarp/ddp/rdmap"
	"xwarp/mpa/startup"
	"xwarp/tcp"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

var flagBytes = flag.Uint64("bytes", 8<<20,
	"how many bytes TestFarConnection transfers in each direction of one connection")

// wrapSeen counts, over all scenarios, the flows whose sequence numbers passed 2^31, and those that passed 0, whichever
// a flow passed first.
var wrapSeen struct{ half, whole atomic.Uint64 }

// wrapped records in f that the sequence number at was sent.
func (f *flow) wrapped(at seq.Num) {
	if f.turned || (f.iss^at)>>31 == 0 || at.Less(f.iss) {
		return
	}
	f.turned = true
	if at>>31 == 0 {
		wrapSeen.whole.Add(1)
	} else {
		wrapSeen.half.Add(1)
	}
}

// nearWrap returns a free port, from first on, for a connection dialled at a given time: the one whose sequence
// numbers, or those of the responder, start closest before 0 or 2^31.
func nearWrap(from, to *Host, v6 int, at tick.Time, answer bool, first uint16,
	taken map[uint16]bool) (best uint16) {
	const fewest = 100 // bytes of the start-up, which must end before the wrap
	least := uint32(math.MaxUint32)
	for port := first; port < first+28000; port++ {
		secret, t := &from.secret, tcp.Tuple{Local: from.Addr(v6), Remote: to.Addr(v6),
			LocalPort: port, RemotePort: rdmaPort}
		if answer {
			secret, t = &to.secret, tcp.Tuple{Local: t.Remote, Remote: t.Local,
				LocalPort: rdmaPort, RemotePort: port}
		}
		left := -uint32(tcp.ISN(secret, &t, at)) & math.MaxInt32
		if left >= fewest && left < least && !taken[port] {
			best, least = port, left
		}
	}
	taken[best] = true
	return best
}

// numbers draws whether the sequence numbers of a connection from cfg.port start shortly before a wrap. If so, it
// changes the port.
func (w *wide) numbers(cfg *rdmaConfig, from, to *Host, after tick.Duration) {
	drawn := w.rnd
	defer func() { w.rnd = drawn }()
	w.draws(fmt.Sprintf("sequence numbers of port %d", cfg.port))
	if answer := w.one(2); w.one(5) && !w.off("sequence numbers") {
		cfg.port = nearWrap(from, to, w.v6, w.world.Now().Add(after), answer, 32000, w.wraps)
	}
}

// again restarts both programs of c, from the same memory, after they end. It returns false if enough was transferred.
func (c *rdmaConn) again() bool {
	enough := true
	for _, e := range []*rdmaEnd{c.a, c.b} {
		for i := range e.ops {
			if o := &e.ops[i]; o.wr.Op == rdmap.WRRead {
				e.peer.sent += uint64(len(o.effect.want))
			} else {
				e.sent += uint64(len(o.effect.want))
			}
		}
	}
	for _, e := range []*rdmaEnd{c.a, c.b} {
		enough = enough && e.sent >= c.cfg.byteCount
	}
	if enough {
		return false
	}
	c.s.world.Fail(c.a.memory())
	c.s.world.Fail(c.b.memory())
	for _, e := range []*rdmaEnd{c.a, c.b} {
		copy(e.mem, e.base)
		e.next, e.acks, e.recvPosted, e.recvDone = 0, 0, 0, 0
		for i := range e.ops {
			e.ops[i].posted, e.ops[i].done = false, false
		}
		for e.recvPosted < len(e.recvs) {
			e.recvs[e.recvPosted].done = false
			if err := e.postRecv(); err != nil {
				e.fail("PostRecv: %v", err)
				return false
			}
		}
	}
	for _, f := range c.s.judge.flows {
		clear(f.segs) // all of them are acknowledged, and their numbers are reused
	}
	c.b.host.Wake()
	return true
}

// TestFarConnection: the sequence numbers of one connection pass 0 or 2^31. The ordinary run starts just before that;
// the target "far" of the Makefile transfers more than 2^32 bytes in each direction, so that other numbers of 32 bits
// wrap, too.
func TestFarConnection(t *testing.T) {
	s := quietScenario(t, 11, 9000, impair.Config{Delay: 20 * us, Loss: 1e-4, Reorder: 1e-3})
	before := wrapSeen.half.Load() + wrapSeen.whole.Load()
	port := nearWrap(s.hosts[0], s.hosts[1], 0, Epoch, false, 32000, map[uint16]bool{})
	c := newRDMA(s, rdmaConfig{
		ini: startup.Config{IRD: 8, ORD: 8, RTRs: startup.RTRRead, Markers: true},
		rsp: startup.Config{Markers: true}, window: 1 << 20, depth: 16, ops: 30, maxOp: 1 << 20,
		bulk: true, byteCount: *flagBytes, port: port,
		tcpA: tcp.Config{RcvSpace: 1 << 20, RcvSpaceMax: 1 << 20},
		tcpB: tcp.Config{RcvSpace: 1 << 20, RcvSpaceMax: 1 << 20},
	}, s.hosts[0], s.hosts[1])
	s.loads = append(s.loads, c)
	c.start()
	if err := s.world.Run(tick.Never, c.over); err != nil {
		t.Fatal(err)
	}
	if err := c.verdict(); err != nil {
		t.Error(err)
	}
	a, b := c.a.sent, c.b.sent
	t.Logf("%d and %d bytes, %d frames in %v of the hosts' time", a, b, s.world.Frames(),
		s.world.Since())
	if a < *flagBytes || b < *flagBytes || before == wrapSeen.half.Load()+wrapSeen.whole.Load() {
		t.Errorf("want %d bytes each way, and sequence numbers that wrap", *flagBytes)
	}
}
