package perf

import (
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"xwarp/ddp/rdmap"
	"xwarp/engine"
)

// pingpong is the consumer of an end under a latency test. By Write, an end knows that a message arrived from its last
// octet in memory, as perftest does: it counts up.
type pingpong struct {
	e       *rdma
	client  bool
	hist    *histogram
	began   time.Time
	sent    time.Time
	from    time.Time
	to      time.Time
	count   uint64 // messages that came back
	warm    uint64 // of these, before the clock ran
	seen    byte
	posted  int
	err     error
	done    chan struct{}
	ended   bool
	batch   [32]engine.Completion
	wr      engine.SendWR
	sge     [1]engine.SGE
	arrived int // receives that completed
	pending int // Reads that completed
	mem     memory
	got     Result // what mem counted
}

func newPingpong(e *rdma, client bool) *pingpong {
	return &pingpong{e: e, client: client, hist: newHistogram(e.spec.Verb != Read), done: make(chan struct{})}
}

func (p *pingpong) postReceives() error {
	if !p.e.spec.twoSided() {
		return nil
	}
	for range 8 {
		if err := p.postRecv(); err != nil {
			return err
		}
	}
	return nil
}

func (p *pingpong) postRecv() error {
	n := p.e.spec.Size
	return p.e.qps[0].PostRecv(&engine.RecvWR{ID: kindRecv, SGL: []engine.SGE{p.e.mr.SGE(0, n)}})
}

// turn implements consumer.
func (p *pingpong) turn() bool {
	if p.ended {
		return false
	}
	if p.began.IsZero() {
		p.mem.prepare()
		p.began = time.Now()
		if p.client {
			p.ping()
		}
		return true
	}
	worked := p.poll()
	if !p.came() {
		return worked
	}
	if !p.client {
		p.ping()
		return true
	}
	now := time.Now()
	p.count++
	p.measure(now)
	if !p.ended {
		p.ping()
	}
	return true
}

// poll takes completions.
func (p *pingpong) poll() bool {
	n, err := p.e.cq.Poll(p.batch[:])
	if err != nil {
		p.fail(err)
	}
	for i := range p.batch[:n] {
		c := &p.batch[i]
		switch {
		case c.Status != rdmap.Success:
			p.fail(fmt.Errorf("%v completed with %v: %w", c.Op, c.Status, c.QP.Err()))
		case c.Op == rdmap.WRRecv:
			p.arrived++
			p.again()
		case c.Op == rdmap.WRRead:
			p.pending++
		}
	}
	return n > 0
}

// again posts the receive that was used.
func (p *pingpong) again() {
	p.sge[0] = p.e.mr.SGE(0, p.e.spec.Size)
	wr := engine.RecvWR{ID: kindRecv, SGL: p.sge[:]}
	if err := p.e.qps[0].PostRecv(&wr); err != nil {
		p.fail(err)
	}
}

// came reports whether the message that is waited for is there.
func (p *pingpong) came() bool {
	switch p.e.spec.Verb {
	case Read:
		ok := p.pending > 0
		p.pending = 0
		return ok
	case Send:
		if p.arrived == 0 {
			return false
		}
		p.arrived--
		return true
	}
	if p.client {
		return p.last() == p.seen
	}
	if p.last() == p.seen+1 {
		p.seen++
		return true
	}
	return false
}

// last reads the last octet of the peer's message, which lies at the start of the memory. Over kernel sockets another thread
// writes it.
func (p *pingpong) last() byte {
	b := unsafe.Pointer(&p.e.mem[p.e.spec.Size-1])
	off := int(uintptr(b) & 3)
	v := atomic.LoadUint32((*uint32)(unsafe.Add(b, -off)))
	return (*[4]byte)(unsafe.Pointer(&v))[off]
}

// out is where our own message lies.
func (p *pingpong) out() int {
	_, stride := p.e.spec.buffers()
	return stride
}

// signalEach is after how many Writes or Sends one asks for a completion.
const signalEach = 16

// ping sends one message.
func (p *pingpong) ping() {
	s := p.e.spec
	at := p.out()
	p.sge[0] = p.e.mr.SGE(at, s.Size)
	p.wr = engine.SendWR{Op: rdmap.WRWrite, SGL: p.sge[:], RemoteSTag: p.e.target()}
	p.posted++
	if p.posted%signalEach == 0 {
		p.wr.Flags = rdmap.Signaled
	}
	switch s.Verb {
	case Read:
		p.wr.Op, p.wr.Flags = rdmap.WRRead, rdmap.Signaled
	case Send:
		p.wr.Op, p.wr.RemoteSTag = rdmap.WRSend, 0
	default:
		if p.client {
			p.seen++
		}
		p.e.mem[at+s.Size-1] = p.seen
	}
	if p.client {
		p.sent = time.Now()
	}
	if err := p.e.qps[0].PostSend(&p.wr); err != nil {
		p.fail(err)
	}
}

// measure records one round and decides whether there is another.
func (p *pingpong) measure(now time.Time) {
	s := p.e.spec
	warm := s.Iterations == 0 && now.Sub(p.began) < s.Warmup
	if warm {
		p.warm++
		return
	}
	if p.from.IsZero() {
		p.from = p.sent
		p.mem.begin()
	}
	p.hist.record(now.Sub(p.sent))
	p.to = now
	if s.Iterations > 0 && p.count >= uint64(s.Iterations) || s.Iterations == 0 && now.Sub(p.from) >= s.Duration {
		p.end()
	}
}

func (p *pingpong) result() *Result {
	n := p.count - p.warm
	return &Result{
		Messages: n, Octets: n * uint64(p.e.spec.Size), Seconds: p.to.Sub(p.from).Seconds(), Latency: p.hist.result(),
		Mallocs: p.got.Mallocs, GCs: p.got.GCs,
	}
}

func (p *pingpong) fail(err error) {
	if p.err == nil {
		p.err = err
	}
	p.end()
}

func (p *pingpong) end() {
	if !p.ended {
		p.ended = true
		p.mem.end(&p.got)
		close(p.done)
	}
}
