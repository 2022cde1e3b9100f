package endpoint

import (
	"sync/atomic"
	"time"
	"unsafe"

	"xwarp/ddp/rdmap"
	"xwarp/engine/verbs"
)

// pingpong is the consumer of an end under a latency test. By Write, an end knows that a message arrived from its last
// byte in memory, as perftest does: it counts up.
type pingpong struct {
	ending
	e         *rdma
	qp        poster
	verb      Verb
	client    bool
	rounds    rounds
	running   bool
	from      time.Time // the last whole round; as in perftest, its end is the beginning of the next one
	sent      time.Time
	fresh     bool // it is not recorded yet: that happens while the next one is under way
	full      bool // all rounds were recorded; the one under way is not
	seen      byte
	word      *uint32 // where the last byte of the peer's message is, and which byte of the word it is
	byteIndex int
	idle      int // turns without a message
	posted    int
	batch     [32]verbs.Completion
	wr        verbs.SendWR
	recv      verbs.RecvWR
	sge       [1]verbs.SGE
	arrived   int // receives that completed
	pending   int // Reads that completed
}

// poster is a queue pair of the engine, which takes requests on its worker's own thread.
type poster interface {
	PostSendOn(queue int, wr *verbs.SendWR) error
	PostRecvOn(queue int, wr *verbs.RecvWR) error
}

// elsewhere is a poster for a worker in another process.
type elsewhere struct{ verbs.QP }

func (e elsewhere) PostSendOn(_ int, wr *verbs.SendWR) error { return e.PostSend(wr) }
func (e elsewhere) PostRecvOn(_ int, wr *verbs.RecvWR) error { return e.PostRecv(wr) }

// posterOf returns the best way to post to q.
func posterOf(q verbs.QP) poster {
	if p, ok := q.(poster); ok {
		return p
	}
	return elsewhere{q}
}

func newPingpong(e *rdma, client bool) *pingpong {
	p := &pingpong{ending: newEnding(), e: e, verb: e.spec.Verb, client: client,
		rounds: newRounds(e.spec)}
	p.qp = posterOf(e.qps[0])
	b := unsafe.Pointer(&e.mem[e.spec.Size-1])
	p.byteIndex = int(uintptr(b) & 3)
	p.word = (*uint32)(unsafe.Add(b, -p.byteIndex))
	return p
}

func (p *pingpong) postReceives() error {
	if !p.e.spec.twoSided() {
		return nil
	}
	for range 8 {
		if err := p.e.qps[0].PostRecv(p.receive()); err != nil {
			return err
		}
	}
	return nil
}

// receive returns the request of a receive, valid until the next one is made.
func (p *pingpong) receive() *verbs.RecvWR {
	p.sge[0] = p.e.mr.SGE(0, p.e.spec.Size)
	p.recv = verbs.RecvWR{ID: kindRecv, SGL: p.sge[:]}
	return &p.recv
}

// pollOnce implements consumer.
func (p *pingpong) pollOnce() bool {
	if p.ended {
		return false
	}
	if !p.running {
		p.start()
		return true
	}
	worked := p.verb != Write && p.poll()
	if !p.came() {
		if p.idle++; p.idle == 1 {
			p.measure()
		}
		return worked || p.verb == Write && p.idle%pollEach == 1 && p.poll()
	}
	if p.idle == 0 {
		p.measure()
	}
	p.idle = 0
	if p.full {
		p.finish()
	}
	if p.client {
		p.from, p.sent = p.sent, time.Now()
		p.fresh = true
	}
	if !p.ended {
		p.ping()
	}
	return true
}

// pollEach is the interval, in turns without a message, between polls for completions of Writes. These completions only
// show that memory is free and the connection exists. The first such turn polls.
const pollEach = 64

func (p *pingpong) start() {
	p.running = true
	p.sent = time.Now()
	p.rounds.openAt(p.sent)
	if p.client {
		p.ping()
	}
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
			p.fail(c.Err())
		case c.Op == rdmap.WRRecv:
			p.arrived++
			if err := p.qp.PostRecvOn(0, p.receive()); err != nil {
				p.fail(err)
			}
		case c.Op == rdmap.WRRead:
			p.pending++
		}
	}
	return n > 0
}

// came reports whether the awaited message has arrived.
func (p *pingpong) came() bool {
	switch p.verb {
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

// last reads the last byte of the peer's message, which lies at the start of the memory. Over kernel sockets
// another thread writes it.
func (p *pingpong) last() byte {
	v := atomic.LoadUint32(p.word)
	return (*[4]byte)(unsafe.Pointer(&v))[p.byteIndex&3]
}

// out is where our own message lies.
func (p *pingpong) out() int {
	_, stride := p.e.spec.buffers()
	return stride
}

// signalEach is the interval of signaled Writes or Sends.
const signalEach = 16

// ping sends one message.
func (p *pingpong) ping() {
	s := p.e.spec
	at := p.out()
	p.wr = verbs.SendWR{Op: rdmap.WRWrite, RemoteSTag: p.e.target()}
	if s.Verb != Read && s.Size <= verbs.DefaultInline {
		p.wr.Inline = p.e.mem[at : at+s.Size]
	} else {
		p.sge[0] = p.e.mr.SGE(at, s.Size)
		p.wr.SGL = p.sge[:]
	}
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
	if err := p.qp.PostSendOn(0, &p.wr); err != nil {
		p.fail(err)
	}
}

// measure records the last round and decides whether there are more.
func (p *pingpong) measure() {
	if !p.fresh || p.full {
		return
	}
	p.fresh = false
	p.full = !p.rounds.addRound(p.from, p.sent)
}
