package endpoint

import (
	"encoding/binary"
	"time"

	"xwarp/ddp"
	"xwarp/ddp/rdmap"
	"xwarp/engine/verbs"
)

// The kinds of work requests. A request's ID holds, from the lowest bit on: its kind, the number of messages that its
// completion stands for, and the number of its connection.
const (
	kindData  = iota // a message; if signaled, the last of a run of messages that share a completion
	kindRecv         // a receive, for a message or a credit of the peer
	kindOther        // a credit, which is not counted
	kindBits  = 2
	countBits = 16
)

func workID(conn, kind, count int) uint64 {
	return uint64(conn)<<(kindBits+countBits) | uint64(count)<<kindBits | uint64(kind)
}

func workOf(id uint64) (conn, kind, count int) {
	return int(id >> (kindBits + countBits)), int(id & (1<<kindBits - 1)),
		int(id >> kindBits & (1<<countBits - 1))
}

// mover is the consumer of an end under a bandwidth test: it sends messages, receives messages, or both.
type mover struct {
	ending
	e        *rdma
	source   bool
	flows    []flow
	qps      []poster
	win      window
	total    uint64 // messages complete on all connections
	messages uint64 // messages to send on all connections; 0: no limit, the duration decides
	under    int    // messages under way on all connections
	run      int    // messages that share one completion
	stopped  bool
	slots    int // buffers of a connection
	stride   int
	batch    [64]verbs.Completion
	wr       verbs.SendWR
	credit   verbs.SendWR
	recv     verbs.RecvWR
	sge      [1]verbs.SGE
	word     [8]byte
}

// flow is one connection of a mover.
type flow struct {
	posted, completed uint64
	credit            uint64 // total number of messages that may be sent; limits only verbs that consume receives
	received          uint64
	slot, into        int // indexes of the next buffer to send from, and of the next to receive into
}

func newMover(e *rdma, source bool) *mover {
	m := &mover{ending: newEnding(), e: e, source: source, flows: make([]flow, e.spec.Conns)}
	m.win.spec = e.spec
	m.slots, m.stride = e.spec.buffers()
	m.run = e.spec.Moderation
	if e.spec.twoSided() {
		m.run = min(m.run, e.receives()/4)
	}
	m.messages = uint64(e.spec.Iterations * e.spec.Conns)
	for i := range m.flows {
		m.flows[i].credit = uint64(e.receives())
		m.qps = append(m.qps, posterOf(e.qps[i]))
	}
	return m
}

// twoSided reports whether messages consume receives of the peer.
func (s *Spec) twoSided() bool { return s.Verb == Send || s.Verb == WriteSend }

// postReceives posts the receives of every queue pair, before it is connected.
func (m *mover) postReceives() error {
	for i, q := range m.e.qps {
		if !m.e.spec.twoSided() {
			continue
		}
		for range m.e.receives() {
			if err := m.postRecv(q, i); err != nil {
				return err
			}
		}
	}
	return nil
}

// postRecv posts one receive on connection i. It has room for a message as well as for a credit of the peer, because
// with both directions in use either may arrive. The solicited event of a credit distinguishes them.
func (m *mover) postRecv(q verbs.QP, i int) error {
	s := m.e.spec
	f := &m.flows[i]
	m.recv = verbs.RecvWR{ID: workID(i, kindRecv, 0), SGL: m.sge[:]}
	m.sge[0] = m.e.small.SGE(0, 8)
	if s.Verb == Send && s.Size > 8 {
		m.sge[0] = m.e.mr.SGE((i*m.slots+f.into)*m.stride, s.Size)
		if f.into++; f.into == m.slots {
			f.into = 0
		}
	}
	return q.PostRecv(&m.recv)
}

// pollOnce implements consumer. The first call opens the window and, on a source, posts the first messages. Each later
// call takes completions and posts more; a source also closes the window. When the test has ended, it does nothing.
func (m *mover) pollOnce() bool {
	if m.ended {
		return false
	}
	if m.win.began.IsZero() {
		m.win.openAt(time.Now())
		if m.source {
			for i := range m.flows {
				m.postAhead(i)
			}
		}
		return true
	}
	n, err := m.e.completions(m.batch[:])
	if err != nil {
		m.fail(err)
		return false
	}
	for i := range m.batch[:n] {
		m.completed(&m.batch[i])
	}
	if m.source && n > 0 {
		now := time.Now()
		if m.stopped = m.stopped || !m.win.tick(now, m.total); m.messages > 0 &&
			m.total >= m.messages {
			m.stopped = true
			m.win.finish(now, m.total)
		}
		if m.stopped && m.under == 0 {
			m.finish()
		}
	}
	return n > 0
}

func (m *mover) completed(c *verbs.Completion) {
	if c.Status != rdmap.Success {
		m.fail(c.Err())
		return
	}
	i, kind, n := workOf(c.ID)
	f := &m.flows[i]
	switch kind {
	case kindData:
		f.completed += uint64(n)
		m.total += uint64(n)
		m.under -= n
		m.postAhead(i)
	case kindRecv:
		if err := m.postRecv(c.QP, i); err != nil {
			m.fail(err)
			return
		}
		if c.Flags&rdmap.Solicited != 0 {
			f.credit += creditStep(m.e.receives())
			m.postAhead(i)
			return
		}
		if f.received++; f.received%creditStep(m.e.receives()) == 0 {
			m.grant(c.QP, i)
		}
	}
}

func creditStep(receives int) uint64 { return uint64(max(1, receives/4)) }

// grant sends a credit for creditStep more messages to the peer. It is a Send with solicited event; messages are not.
func (m *mover) grant(q verbs.QP, i int) {
	binary.BigEndian.PutUint64(m.word[:], m.flows[i].received)
	m.credit = verbs.SendWR{ID: workID(i, kindOther, 0), Op: rdmap.WRSendSE, Inline: m.word[:]}
	if err := q.PostSend(&m.credit); err != nil {
		m.fail(err)
	}
}

// postAhead posts messages on connection i until Depth are under way or credit is used up. It posts whole runs, each
// with one completion.
func (m *mover) postAhead(i int) {
	s, f, q := m.e.spec, &m.flows[i], m.qps[i]
	for !m.stopped && m.source && f.posted-f.completed < uint64(s.Depth) {
		run := uint64(m.run)
		if n := uint64(s.Iterations); n > 0 {
			run = min(run, n-f.posted)
		}
		if run == 0 || f.posted-f.completed+run > uint64(s.Depth) {
			return
		}
		if s.twoSided() && f.posted+run > f.credit-min(f.credit, creditReserve) {
			return
		}
		for k := range run {
			last := 0
			if k == run-1 {
				last = int(run)
			}
			if err := m.post(q, i, f, last); err != nil {
				m.fail(err)
				return
			}
		}
		m.under += int(run)
	}
}

// creditReserve is the number of the peer's receives that messages leave free, for credits of the other direction.
const creditReserve = 8

// post sends one message. If last is above 0, the message is signaled and its completion stands for last messages.
func (m *mover) post(q poster, i int, f *flow, last int) error {
	s := m.e.spec
	at := (i*m.slots + f.slot) * m.stride
	if f.slot++; f.slot == m.slots {
		f.slot = 0
	}
	f.posted++
	m.sge[0] = m.e.mr.SGE(at, s.Size)
	m.wr = verbs.SendWR{ID: workID(i, kindData, last), SGL: m.sge[:]}
	if last > 0 {
		m.wr.Flags = rdmap.Signaled
	}
	switch s.Verb {
	case Read:
		m.wr.Op = rdmap.WRRead
	case Send:
		m.wr.Op = rdmap.WRSend
		return q.PostSendOn(0, &m.wr)
	default:
		m.wr.Op = rdmap.WRWrite
	}
	m.wr.RemoteSTag, m.wr.RemoteTO = m.e.target(), ddp.TO(at)
	if s.Verb != WriteSend {
		return q.PostSendOn(0, &m.wr)
	}
	m.wr.Flags = 0
	if err := q.PostSendOn(0, &m.wr); err != nil {
		return err
	}
	m.wr = verbs.SendWR{ID: workID(i, kindData, last), Op: rdmap.WRSend, Inline: m.word[:]}
	if last > 0 {
		m.wr.Flags = rdmap.Signaled
	}
	return q.PostSendOn(0, &m.wr)
}
