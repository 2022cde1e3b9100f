package layers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/ddp"
	"xwarp/ddp/rdmap"
	"xwarp/engine/iwarp"
	"xwarp/engine/overtcp"
	"xwarp/engine/stack"
	"xwarp/mpa"
	"xwarp/mpa/startup"
	"xwarp/ring"
	"xwarp/ring/gso"
	"xwarp/tcp"
	"xwarp/tcp/ip"
	"xwarp/tcp/tick"
)

// queuePair is a queue pair and the registered memory that it uses.
type queuePair struct {
	table *ddp.Table
	pd    *ddp.PD
	mr    *ddp.MR
	mem   []byte
	qp    rdmap.QP
}

type completer func(*rdmap.Completion)

func (f completer) Complete(c *rdmap.Completion) { f(c) }

type random struct{ *rand.Rand }

func newQueuePair(byteCount int, done completer) (*queuePair, error) {
	m := &queuePair{mem: make([]byte, byteCount),
		table: ddp.NewTable(random{rand.New(rand.NewPCG(1, 2))})}
	var err error
	if m.pd, err = m.table.AllocPD(); err != nil {
		return nil, err
	}
	m.mr, err = m.table.Register(m.pd, m.mem,
		ddp.Attr{Access: ddp.LocalWrite | ddp.RemoteWrite | ddp.RemoteRead})
	if err != nil {
		return nil, err
	}
	return m, m.qp.Init(rdmap.Config{
		Table: m.table, PD: m.pd, Stream: 1, SendDepth: 64, RecvDepth: 16, MaxSGE: 1, MaxIRD: 16,
		MaxORD: 16, Completer: done,
	})
}

// host is one engine on a fake ring.
type host struct {
	*queuePair
	fk    *ring.FakeKernel
	stk   *stack.Stack
	addr  ip.Addr
	mac   [6]byte
	iw    overtcp.Conn
	up    bool
	ended error
	done  int           // completions
	spent time.Duration // processor time of step
	clock time.Duration // part of spent that each reading of the clock takes
}

// Request and Forget implement stack.Resolver. Request answers at once, because a host's MAC follows from its address.
func (h *host) Request(dst ip.Addr) { h.stk.SetHop(dst, [6]byte{2, 0, 0, 0, 0, dst[15]}, nil) }
func (h *host) Forget(ip.Addr)      {}

// The next four methods belong to iwarp.Handler. Its Request method is that of asker, because host.Request is taken.
func (h *host) Established(*iwarp.Conn, *startup.Params) { h.up = true }
func (h *host) Disconnected(_ *iwarp.Conn, err error)    { h.ended = errors.Join(errEnded, err) }
func (h *host) Closed(_ *iwarp.Conn, err error)          { h.ended = errors.Join(errEnded, err) }
func (h *host) TakePosted()                              {}
func (h *host) handler(*rdmap.Completion)                { h.done++ }

// asker is a host as an iwarp.Handler. It accepts every connection request.
type asker struct{ *host }

func (a asker) Request(s *iwarp.Conn, _ *startup.Request) {
	s.Accept(&a.qp, startup.Answer{IRD: 16, ORD: 16})
}

var errEnded = errors.New("the connection ended")

// rig is two hosts and the path between them. Host a writes to host b, whose received frames also go to work.
type rig struct {
	a, b   *host
	work   *bare
	now    tick.Time
	frames [][]byte
	posted int
	blocks int // that a has sent
	wr     rdmap.SendWR
	sge    [1]rdmap.SGE
}

const (
	message  = 1 << 16 // bytes of a Write
	region   = 1 << 20 // bytes of a host's registered memory
	rxFrames = 1024
	pending  = 16 // Writes under way
	port     = 7
)

// newRig connects two hosts. If blocks is set, host a sends blocks, which host b receives whole.
func newRig(mtu int, markers, blocks bool) (*rig, error) {
	r := &rig{now: tick.Time(1e12), work: newBare()}
	r.work.clock = clockCost()
	for i, h := range []**host{&r.a, &r.b} {
		n := &host{clock: r.work.clock, mac: [6]byte{2, 0, 0, 0, 0, byte(i + 1)},
			addr: ip.Addr{10: 0xff, 11: 0xff, 12: 192, 14: 2, 15: byte(i + 1)}}
		var s gso.BlockSender
		if blocks && i == 0 {
			s = &wholeBlocks{r: r}
		}
		if err := n.initStack(mtu, blocks, s); err != nil {
			return nil, err
		}
		*h = n
	}
	cfg := startup.Config{Markers: markers, RTRs: startup.RTRRead, IRD: 16, ORD: 16}
	pool := func() *mpa.Pool { return mpa.NewPool(0, 0) }
	tc := tcp.Config{RcvSpace: region, RcvSpaceMax: region, StretchAck: 8}
	err := r.b.iw.Init(iwarp.Config{Responder: true, Startup: cfg, Pool: pool(),
		Handler: asker{r.b}, Window: region})
	if err == nil {
		err = r.a.iw.Init(iwarp.Config{Startup: cfg, Pool: pool(), Handler: asker{r.a},
			QP: &r.a.qp, Window: region})
	}
	if err != nil {
		return nil, err
	}
	listen := &stack.ListenConfig{Conn: tc, Accept: func(*tcp.Tuple) (stack.Upper, error) {
		return &r.b.iw, nil
	}}
	if _, err := r.b.stk.Listen(r.b.addr, port, listen, r.now); err != nil {
		return nil, err
	}
	t := tcp.Tuple{Local: r.a.addr, Remote: r.b.addr, LocalPort: 1024, RemotePort: port}
	if r.a.iw.Endpoint, err = r.a.stk.Connect(t, &tc, &r.a.iw, r.now); err != nil {
		return nil, err
	}
	for i := 0; i < 1000 && !(r.a.up && r.b.up); i++ {
		r.stepBoth()
	}
	if !r.a.up || !r.b.up {
		return nil, fmt.Errorf("no connection on the fake ring: %w",
			errors.Join(r.a.ended, r.b.ended))
	}
	return r, nil
}

// initStack opens a stack on a fake ring. If large is set, the ring receives blocks whole. The stack sends blocks
// through blocks, if that is not nil.
func (h *host) initStack(mtu int, large bool, blocks gso.BlockSender) (err error) {
	if h.queuePair, err = newQueuePair(region, h.handler); err != nil {
		return err
	}
	h.fk = ring.NewFakeKernel(ring.FakeConfig{Poller: true, Budget: 256})
	s, err := ring.OpenFake(ring.Config{RxFrames: rxFrames, TxSlots: 256,
		TxSlot: ring.SlotFor(mtu + 22), LargeFrames: large}, h.fk)
	if err != nil {
		return err
	}
	port := ring.Port(s)
	if blocks != nil {
		port = gso.Wrap(s, blocks)
	}
	h.stk, err = stack.New(stack.Config{Port: port, MAC: h.mac, MTU: mtu, Resolver: h})
	return err
}

// wholeBlocks passes blocks of host a to host b as one frame with complete checksums, after the frames sent before.
type wholeBlocks struct {
	r   *rig
	buf []byte
}

func (w *wholeBlocks) Send(b gso.Block, n int, s *gso.Shape) unix.Errno {
	for {
		f, ok := w.r.a.fk.Take(w.buf[:0])
		if !ok {
			break
		}
		w.r.b.fk.Inject(f)
	}
	whole := *s
	whole.Payload = n - s.Headers
	w.buf = whole.Segment(w.buf[:0], b.Frame()[:n], 0)
	if !w.r.b.fk.Inject(w.buf) {
		return unix.EAGAIN // it has too few chunks
	}
	w.r.blocks++
	return 0
}

func (w *wholeBlocks) Close() error { return nil }

// cpuTime is the processor time of the calling thread. Other programs disturb it less than wall-clock time.
func cpuTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// clockCost is the time that reading the clock adds to a span measured with cpuTime. It is the least of many readings,
// so that never more than the cost is subtracted.
func clockCost() time.Duration {
	least := time.Duration(1 << 62)
	for range 10_000 {
		start := cpuTime()
		if d := cpuTime() - start; d > 0 { // d may be negative if the goroutine moved to another thread
			least = min(least, d)
		}
	}
	return least
}

// step runs one turn of h's stack and adds its processor time to spent.
func (h *host) step(now tick.Time) {
	start := cpuTime()
	h.stk.Step(now)
	h.spent += cpuTime() - start - h.clock
}

// carry passes the frames that from has sent to to, a batch at a time, and runs to after each batch. If to is host b,
// the frames with payload also go to r.work, and carry returns their number; otherwise it returns 0.
func (r *rig) carry(from, to *host) (data int) {
	n := 0
	for {
		if n == len(r.frames) {
			r.frames = append(r.frames, make([]byte, 0, 16384))
		}
		f, ok := from.fk.Take(r.frames[n][:0])
		if !ok {
			break
		}
		r.frames[n] = f
		n++
	}
	for batch := range slices.Chunk(r.frames[:n], stack.MaxBatch) {
		for _, f := range batch {
			to.fk.Inject(f)
		}
		to.step(r.now)
		if to != r.b {
			continue
		}
		for _, f := range batch {
			if len(f) > 200 {
				r.work.keepFrame(f)
				data++
			}
		}
		r.work.touchFrames()
	}
	return data
}

// stepBoth runs one turn of both hosts and returns the number of frames and blocks with payload that went from a to b.
func (r *rig) stepBoth() int {
	r.now = r.now.Add(20 * tick.Microsecond)
	before := r.blocks
	r.a.step(r.now)
	n := r.carry(r.a, r.b)
	for range pending { // host b may have to receive several batches
		if r.blocks == 0 || r.b.stk.Stats().RxFrames == r.b.fk.FakeStats().Injected {
			break
		}
		r.b.step(r.now)
	}
	r.carry(r.b, r.a)
	return n + r.blocks - before
}

// postWrites posts Writes on host a until pending are under way.
func (r *rig) postWrites() error {
	for r.posted-r.a.done < pending {
		at := ddp.TO(r.posted % (region / message) * message)
		r.sge[0] = rdmap.SGE{STag: r.a.mr.STag(), TO: at, Len: message}
		r.wr = rdmap.SendWR{Op: rdmap.WRWrite, Flags: rdmap.Signaled, SGL: r.sge[:],
			RemoteSTag: r.b.mr.STag(), RemoteTO: at}
		if err := r.a.qp.PostSend(&r.wr); err != nil {
			return err
		}
		r.posted++
		r.a.iw.Endpoint.Schedule()
	}
	return nil
}
