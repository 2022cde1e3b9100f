package rdmap

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"xwarp/ddp"
)

var (
	programs = flag.Int("programs", 1000, "random programs to run")
	seedFlag = flag.Uint64("seed", 0, "run only the program with this seed")
)

const (
	targetLen = 4096 // remote region of one direction
	poolLen   = 8192
)

// TestRandomPrograms runs random verbs over 1 to 16 queue pairs and compares memory, receives
// and completions with a model that executes each verb at once. ULPDUs are placed in any order.
//
//req:rfc5041-4.1-3 rfc5041-4.2-3 rfc5041-5.2-1 rfc5041-5.2-3 rfc5041-5.3-1 rfc5041-5.3-2 rfc5041-5.4-1 rfc5041-5.4-2
//req:rfc5040-4.4-2 rfc5040-5.1-2 rfc5040-5.1-3 rfc5040-5.2-1 rfc5040-5.2.1-2 rfc5040-5.2.1-3 rfc5040-5.2.1-4 rfc5040-5.2.2-3
//req:rfc5040-5.3-2 rfc5040-5.3-3 rfc5040-5.5-10 rfc5040-5.5-12 rfc5040-5.5-13 rfc5040-5.5-14 rfc5040-5.5-15 rfc5040-5.5-16
//req:rfc5040-5.5-19 rfc5040-5.5-20 rfc7306-5.2.1-2 rfc7306-5.4-1 rfc7306-5.4-2 rfc7306-6.3-2
func TestRandomPrograms(t *testing.T) {
	if *seedFlag != 0 {
		runProgram(t, *seedFlag)
		return
	}
	var total Counters
	for i := range *programs {
		c := runProgram(t, uint64(i)+1)
		total.PlacedAhead += c.PlacedAhead
		total.SegmentsOut += c.SegmentsOut
		total.MessagesOut += c.MessagesOut
		if t.Failed() {
			t.Fatalf("program failed; repeat it with -run TestRandomPrograms -seed %d", i+1)
		}
	}
	if total.PlacedAhead*10 < total.SegmentsOut {
		t.Errorf("only %d of %d segments were placed ahead of their turn: the test does not test",
			total.PlacedAhead, total.SegmentsOut)
	}
	t.Logf("%d programs, %d verbs, %d segments, %d placed ahead", *programs, total.MessagesOut,
		total.SegmentsOut, total.PlacedAhead)
}

// receiver keeps the receives of one end posted.
type receiver struct {
	h    *host
	bufs map[uint64]*ddp.MR
	rng  *rand.Rand
	id   uint64
	srq  *SRQ
	got  []Completion
	data [][]byte
}

func (r *receiver) post() {
	m := r.h.region(targetLen+16, ddp.Attr{Access: ddp.LocalWrite})
	r.id++
	r.bufs[r.id] = m
	k := r.rng.IntN(targetLen)
	wr := &RecvWR{ID: r.id, SGL: []SGE{sge(m, 0, k), sge(m, k, 0), sge(m, k, targetLen-k)}}
	var err error
	if r.srq != nil {
		err = r.srq.PostRecv(wr)
	} else {
		err = r.h.qp.PostRecv(wr)
	}
	if err != nil {
		r.h.t.Fatalf("PostRecv: %v", err)
	}
}

// complete returns the message in a receive, and checks that nothing behind it was touched.
func (r *receiver) complete(c *Completion) []byte {
	m := r.bufs[c.ID]
	delete(r.bufs, c.ID)
	b := r.h.held(m)
	n := int(c.ByteLen)
	if c.Flags&(WithImm|OfSend) == WithImm {
		n = 0
	}
	data := bytes.Clone(b[:n])
	for i := n; i < len(b); i++ {
		if b[i] != byte(i*7+len(b)) {
			r.h.t.Fatalf("byte %d of a receive of %d bytes was touched", i, n)
		}
	}
	return data
}

func runProgram(t *testing.T, seed uint64) Counters {
	rng := rand.New(rand.NewPCG(seed, 0x5eed))
	pairs := 1 + rng.IntN(16)
	verbs := 1 + rng.IntN(60)
	if rng.IntN(50) == 0 {
		verbs = 1000
	}
	left, right := newHost(t, seed), newHost(t, seed+1)
	var flows []*flow
	var lanes []*lane
	for i := range pairs {
		cfg := func(h *host) func(*Config) {
			return func(c *Config) {
				c.Stream = ddp.StreamID(i + 1)
				c.SendDepth, c.MaxInline = 1+rng.IntN(16), 64
				c.RecvDepth = 16
			}
		}
		p := Params{Version: ddp.IETF, IRD: 1 + rng.IntN(8), Private: rng.IntN(2) == 0}
		p.ORD = p.IRD
		share := func(h *host) *host { return &host{t: t, table: h.table, pd: h.pd} }
		a, b := share(left), share(right)
		a.open(cfg(a), p)
		b.open(cfg(b), p)
		limit := MinULPDU + rng.IntN(1400)
		window := 1 + rng.IntN(24)
		each := (verbs + 2*pairs - 1) / (2 * pairs)
		for _, e := range [][2]*host{{a, b}, {b, a}} {
			flows = append(flows, newFlow(rng, e[0], e[1], each))
			lanes = append(lanes, &lane{from: e[0], to: e[1], rng: rng, limit: limit,
				window: window})
		}
	}
	receivers := watch(rng, flows, rng.IntN(3) == 0)
	drive(t, rng, flows, lanes)
	var sum Counters
	for i, f := range flows {
		f.check(t, receivers[i])
		c := f.x.qp.Counters
		sum.PlacedAhead += c.PlacedAhead
		sum.SegmentsOut += c.SegmentsOut
		sum.MessagesOut += c.MessagesOut
	}
	return sum
}

func newFlow(rng *rand.Rand, x, y *host, verbs int) *flow {
	f := &flow{rng: rng, x: x, y: y, todo: verbs}
	f.pool = x.region(poolLen, ddp.Attr{Base: ddp.TO(rng.Uint64() >> 1)})
	sinks := min(verbs*200, 1<<17) + targetLen
	f.sinks = x.register(make([]byte, sinks), ddp.Attr{Access: ddp.LocalWrite,
		Base: ddp.TO(rng.Uint64() >> 1)})
	f.modelSinks = make([]byte, sinks)
	f.target = y.region(targetLen,
		ddp.Attr{Access: ddp.RemoteRead | ddp.RemoteWrite | ddp.RemoteAtomic,
			Stream: y.qp.cfg.Stream, Base: ddp.TO(rng.Uint64() >> 1)})
	f.modelTarget = bytes.Clone(y.held(f.target))
	return f
}

// watch posts receives at the target of each flow, from a shared queue per host or its own, and
// collects completions.
func watch(rng *rand.Rand, flows []*flow, shared bool) []*receiver {
	srqs := map[*ddp.PD]*SRQ{}
	var rs []*receiver
	for _, f := range flows {
		r := &receiver{h: f.y, bufs: map[uint64]*ddp.MR{}, rng: rng}
		if shared {
			// One buffer map for all receivers of a host, since any of them may take any buffer.
			s := srqs[f.y.pd]
			if s == nil {
				s, _ = NewSRQ(SRQConfig{Table: f.y.table, PD: f.y.pd, Depth: 256, MaxSGE: 4})
				srqs[f.y.pd] = s
			}
			r.srq = s
			attach(f.y.qp, s)
		}
		rs = append(rs, r)
	}
	byPD := map[*ddp.PD]*receiver{}
	for i, f := range flows {
		r, source := rs[i], rs[i]
		if shared {
			if byPD[f.y.pd] == nil {
				byPD[f.y.pd] = r
			}
			source = byPD[f.y.pd]
		}
		for range 16 { // as many for each queue pair as it can take ahead
			source.post()
		}
		f.y.onCQE = func(c *Completion) {
			if c.Op == WRRecv {
				r.got, r.data = append(r.got, *c), append(r.data, source.complete(c))
				source.post()
			}
		}
	}
	return rs
}

// attach moves a fresh queue pair to a shared receive queue.
func attach(q *QP, s *SRQ) {
	q.cfg.SRQ = s
	q.rq.init(&q.cfg)
	s.users++
}

// drive posts verbs and moves ULPDUs in random order until all is done.
func drive(t *testing.T, rng *rand.Rand, flows []*flow, lanes []*lane) {
	for idle := 0; idle < 50; {
		i := rng.IntN(len(flows))
		posted := rng.IntN(4) == 0 && flows[i].post()
		if lanes[i].step() || posted {
			idle = 0
			continue
		}
		busy := false
		for k, f := range flows {
			busy = busy || f.post() || f.x.qp.Busy() || len(f.queue) > 0 ||
				len(lanes[k].flying) > 0 || len(lanes[k].delivered) > 0 || f.x.qp.ULPDUWaiting()
		}
		if !busy {
			return
		}
		moved := false
		for _, l := range lanes {
			moved = l.step() || moved
		}
		if moved {
			idle = 0
		} else {
			idle++
			for _, f := range flows { // as the timer does
				f.x.qp.ReleaseReport()
				f.y.qp.ReleaseReport()
			}
		}
	}
	for i, f := range flows {
		s, r := f.x.qp.Outstanding()
		out, in := f.x.qp.ReadsInFlight()
		t.Logf("flow %d: %v, %d queued, send %d recv %d reads %d/%d", i, f.x.qp.State(),
			len(f.queue), s, r, out, in)
	}
	t.Fatal("stuck")
}

func (f *flow) check(t *testing.T, r *receiver) {
	if got := f.y.held(f.target); !bytes.Equal(got, f.modelTarget) {
		t.Errorf("target differs from the model at byte %d", firstDiff(got, f.modelTarget))
	}
	if got := f.x.held(f.sinks); !bytes.Equal(got, f.modelSinks) {
		t.Errorf("sinks differ from the model at byte %d of %d", firstDiff(got, f.modelSinks),
			f.sinkOff)
	}
	var sends []Completion
	for _, c := range f.x.cqes {
		if c.Op != WRRecv {
			sends = append(sends, c)
		}
	}
	if fmt.Sprint(sends) != fmt.Sprint(f.done) {
		t.Errorf("completions\n got %v\nwant %v", sends, f.done)
	}
	if len(r.got) != len(f.messages) {
		t.Fatalf("%d receives completed, want %d", len(r.got), len(f.messages))
	}
	for i, m := range f.messages {
		c := r.got[i]
		if c.Status != Success || c.Flags&^FromSharedQueue != m.flags || c.Imm != m.imm ||
			c.Invalidated != m.inv || !bytes.Equal(r.data[i], m.data) {
			t.Errorf("receive %d: %+v with %d bytes, want %+v with %d", i, c, len(r.data[i]), m,
				len(m.data))
		}
		if r.srq == nil && c.ID != uint64(i+1) {
			t.Errorf("receive %d went to buffer %d", i, c.ID)
		}
	}
	for _, g := range f.gone {
		if g.table.Lookup(g.stag) != nil {
			t.Errorf("STag %#x was not invalidated", g.stag)
		}
	}
}

func firstDiff(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}
