package endpoint

import (
	"sync/atomic"
	"time"
	"unsafe"

	"xwarp/ddp/rdmap"
	"xwarp/engine/verbs"
)

// pingpong is the consumer of an end under a latency test. With Writes, an end polls the last byte of its buffer for
// the next message, as perftest does: each message increases that byte by one.
type pingpong struct {
	ending
	e         *rdma
	qp        poster
	verb      Verb
	client    bool
	rounds    rounds
	running   bool
	from      time.Time // start of the last complete round
	sent      time.Time // end of the last complete round and, as in perftest, start of the current one
	fresh     bool      // the last complete round is not recorded yet: that happens while the next one is under way
	full      bool      // all rounds are recorded; the current one is not counted
	seen      byte      // value of the last byte of the current message
	word      *uint32   // the aligned word in memory that contains the last byte of the peer's message
	byteIndex int       // index of that byte in word
	idle      int       // consecutive turns without a message
	posted    int       // messages sent
	batch     [32]verbs.Completion
	wr        verbs.SendWR
	recv      verbs.RecvWR
	sge       [1]verbs.SGE
	arrived   int // completed receives that came has not consumed yet
	pending   int // completed Reads that came has not consumed yet
}

// poster posts requests to a queue pair from the thread of the worker that owns it. The engine's queue pairs implement
// it.
type poster interface {
	PostSendOn(queue int, wr *verbs.SendWR) error
	PostRecvOn(queue int, wr *verbs.RecvWR) error
}

// postingAdapter is a poster for a queue pair without PostSendOn, such as one whose worker is in the daemon's process.
type postingAdapter struct{ verbs.QP }

func (e postingAdapter) PostSendOn(_ int, wr *verbs.SendWR) error { return e.PostSend(wr) }
func (e postingAdapter) PostRecvOn(_ int, wr *verbs.RecvWR) error { return e.PostRecv(wr) }

// posterOf returns q itself if it is a poster, otherwise a postingAdapter around it.
func posterOf(q verbs.QP) poster {
	if p, ok := q.(poster); ok {
		return p
	}
	return postingAdapter{q}
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

// pollOnce implements consumer. The first call starts the test. Each later call takes completions; if the awaited
// message has arrived, it ends the round and sends the next message. When the test has ended, it does nothing.
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

// pollEach is the interval, in turns without a message, between polls for completions of Writes. The first such turn
// polls. No message depends on these completions: they free the send queue and show errors of the connection.
const pollEach = 64

func (p *pingpong) start() {
	p.running = true
	p.sent = time.Now()
	p.rounds.openAt(p.sent)
	if p.client {
		p.ping()
	}
}

// poll takes completions and counts those of receives and Reads. It reports whether there were any.
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

// came reports whether the awaited message has arrived, and consumes it.
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

// last reads the last byte of the buffer for the peer's message, the first buffer in memory. The load is atomic,
// because over kernel sockets another thread writes the byte.
func (p *pingpong) last() byte {
	v := atomic.LoadUint32(p.word)
	return (*[4]byte)(unsafe.Pointer(&v))[p.byteIndex&3]
}

// out returns the offset in memory of the message that this end sends.
func (p *pingpong) out() int {
	_, stride := p.e.spec.buffers()
	return stride
}

// signalEach is the interval of signaled Writes or Sends: one of signalEach has a completion.
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

// measure records the last complete round, if that has not happened yet, and sets full if it was the last to count.
func (p *pingpong) measure() {
	if !p.fresh || p.full {
		return
	}
	p.fresh = false
	p.full = !p.rounds.addRound(p.from, p.sent)
}
