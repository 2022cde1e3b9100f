package daemon

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"xwarp/ddp/rdmap"
	"xwarp/engine"
	"xwarp/engine/budget"
	"xwarp/engine/daemon/control"
	"xwarp/engine/verbs"
	"xwarp/mpa/ulpdu"
)

// qp is a queue pair of a session: the engine's, and the rings in which the client posts.
type qp struct {
	handle     control.Handle
	s          *session
	q          verbs.QP
	pd         *pd
	send, recv *cq
	srq        *srq // nil: none
	cost       budget.Amounts
	connecting bool // a connect or accept is under way; under the session's mutex

	connected atomic.Bool
	failed    atomic.Bool // a completion said so, and so did the log
	leaving   atomic.Bool // the client asked for the end of the connection
	closed    chan struct{}

	// The pump's, under the session's pumping mutex.
	posted
	recvRing
	sq       *control.Consumer
	inline   int
	sendBuf  []byte
	sendWR   rdmap.SendWR
	then     rdmap.SendWR // after sendWR, when split says so
	split    bool
	sendHeld bool // sendWR is parsed and the engine's queue was full
}

// orNone is a number of a complete configuration in one that is not: 0 would mean the default there.
func orNone(n int) int {
	if n == 0 {
		return -1
	}
	return n
}

// checkQP completes a; 0 means none from then on.
func checkQP(a *control.CreateQPArgs) error {
	c := verbs.QPConfig{
		SendDepth: a.SendDepth, RecvDepth: a.RecvDepth, MaxSGE: a.MaxSGE, MaxInline: a.MaxInline,
		IRD: a.IRD, ORD: a.ORD,
	}.Complete()
	a.SendDepth, a.RecvDepth, a.MaxSGE = c.SendDepth, c.RecvDepth, c.MaxSGE
	a.MaxInline, a.IRD, a.ORD = c.MaxInline, c.IRD, c.ORD
	for _, l := range []struct {
		name             string
		got, least, most int
	}{
		{"send_depth", a.SendDepth, 1, control.MaxDepth}, {"recv_depth", a.RecvDepth, 1,
			control.MaxDepth},
		{"max_sge", a.MaxSGE, 1, rdmap.MaxSGE}, {"max_inline", a.MaxInline, 0, rdmap.MaxInline},
		{"ird", a.IRD, 0, rdmap.MaxIRD}, {"ord", a.ORD, 0, rdmap.MaxORD},
	} {
		if l.got < l.least || l.got > l.most {
			return fmt.Errorf("%w: ibv_create_qp: %s = %d is not in %d to %d", verbs.ErrInvalid,
				l.name, l.got, l.least, l.most)
		}
	}
	return nil
}

func (s *session) createQP(a *control.CreateQPArgs, _ []int) (any, []int, error) {
	if err := checkQP(a); err != nil {
		return nil, nil, err
	}
	p, err := find(s, s.pds, a.PD, "protection domain")
	if err != nil {
		return nil, nil, err
	}
	send, err := find(s, s.cqs, a.SendCQ, "completion queue")
	if err != nil {
		return nil, nil, err
	}
	recv, err := find(s, s.cqs, a.RecvCQ, "completion queue")
	if err != nil {
		return nil, nil, err
	}
	var shared *srq
	if a.SRQ != 0 {
		if shared, err = find(s, s.srqs, a.SRQ, "shared receive queue"); err != nil {
			return nil, nil, err
		}
	}
	q := &qp{s: s, pd: p, send: send, recv: recv, srq: shared, cost: s.qpCost(a),
		closed: make(chan struct{})}
	result, err := paid(s, q.cost, func() (any, error) { return q.open(a) })
	if err != nil {
		return nil, nil, err
	}
	return result, []int{q.mem.TakeFd()}, nil
}

// rings says where the rings of a queue pair lie in their memory, and how long that is. With a shared receive
// queue there is none for receives.
func rings(a *control.CreateQPArgs) (send control.Geometry, recv *control.Geometry, octets uint32) {
	send = control.NewGeometry(0, a.SendDepth, control.SendSlot(a.MaxSGE, a.MaxInline))
	if a.SRQ != 0 {
		return send, nil, send.After()
	}
	recv = new(control.NewGeometry(send.After(), a.RecvDepth, control.RecvSlot(a.MaxSGE)))
	return send, recv, recv.After()
}

// open makes the rings and the engine's queue pair, and enters q into the session.
func (q *qp) open(a *control.CreateQPArgs) (*control.CreateQPResult, error) {
	s := q.s
	res := &control.CreateQPResult{MaxSGE: a.MaxSGE, MaxInline: a.MaxInline}
	var octets uint32
	res.Send, res.Recv, octets = rings(a)
	mem, err := s.d.mapper.NewMemory("xwarp-qp", int(octets))
	if err != nil {
		return nil, err
	}
	q.mem, q.sge, q.inline = mem, a.MaxSGE, a.MaxInline
	q.sendBuf = make([]byte, res.Send.SlotSize)
	q.sq, err = control.NewConsumer(mem.Mem, res.Send)
	if err == nil && res.Recv != nil {
		q.buf = make([]byte, res.Recv.SlotSize)
		q.rq, err = control.NewConsumer(mem.Mem, *res.Recv)
	}
	if err == nil {
		q.q, err = s.dev.dev.CreateQP(q.config(a))
	}
	if err == nil {
		q.to = q.q
		q.q.(*engine.QP).OnEmpty(func() { s.refill(q) })
		err = s.enlist(q)
	}
	if err != nil {
		mem.Close()
		return nil, err
	}
	s.mu.Lock()
	q.handle = s.newHandle()
	s.qps[q.handle] = q
	q.pd.qps++
	q.send.users++
	q.recv.users++
	q.srq.use(1)
	s.mu.Unlock()
	go q.watch()
	res.Handle, res.Bell = q.handle, q.bell
	return res, nil
}

// config is the engine's of a, which is complete.
func (q *qp) config(a *control.CreateQPArgs) verbs.QPConfig {
	c := verbs.QPConfig{
		PD: q.pd.pd, SendCQ: q.send.eng, RecvCQ: q.recv.eng, SendDepth: a.SendDepth,
		RecvDepth: a.RecvDepth, MaxSGE: a.MaxSGE, MaxInline: orNone(a.MaxInline),
		IRD: orNone(a.IRD), ORD: orNone(a.ORD), Context: q,
	}
	if q.srq != nil {
		c.SRQ = q.srq.eng
	}
	return c
}

// watch tells the client when the connection is over, and, where a shared receive queue is used, when no
// completion of a receive can come any more.
func (q *qp) watch() {
	defer q.s.contain("watching a queue pair")
	if !q.tell(q.q.Down(), control.EventDown) || q.srq == nil {
		return
	}
	q.tell(q.q.(*engine.QP).Gone(), control.EventGone)
}

// tell sends an event when a channel is closed; false: the queue pair or the session ended before.
func (q *qp) tell(when <-chan struct{}, event string) bool {
	select {
	case <-when:
	case <-q.closed:
		return false
	case <-q.s.ctx.Done():
		return false
	}
	err := q.q.Err()
	q.s.event(&control.Event{Event: event, QP: q.handle, Error: control.AsError(err),
		Cause: cause(err)})
	return true
}

// cause is the word for an error that a Terminate tells of (RFC 5040, 4.8), empty for others: that the connection is
// lost is no error of the protocol.
func cause(err error) string {
	e := (*ulpdu.Error)(nil)
	switch {
	case !errors.As(err, &e), e.Layer == ulpdu.MPA && e.Code == lostConnection:
		return ""
	case e.Layer != ulpdu.MPA && e.Type == 1: // remote protection; a tagged buffer
		return control.CauseAccess
	case e.Layer != ulpdu.MPA && e.Type == 2: // remote operation; an untagged buffer
		return control.CauseRequest
	}
	return control.CauseFatal
}

// lostConnection is MPA's error code for TCP's end (RFC 5044, 8).
const lostConnection = 1

// event sends the client one.
func (s *session) event(e *control.Event) {
	if err := s.conn.Send(control.KindEvent, control.Marshal(e)); err != nil {
		s.fail(err)
	}
}

func (s *session) destroyQP(a *control.Object) error {
	q, err := remove(s, s.qps, a.Handle, "queue pair", func(q *qp) error {
		return busyIf(q.connecting,
			"ibv_destroy_qp: the queue pair is being connected; cancel that first")
	})
	if err != nil {
		return err
	}
	return s.closeQP(q)
}

// errStuck is returned when the engine does not let go of a queue pair.
var errStuck = errors.New("the queue pair does not end; its memory is kept until the daemon ends")

// closeQP ends the connection and gives back what q has. q is in no table any more.
func (s *session) closeQP(q *qp) error {
	close(q.closed)
	s.delist(q)
	if q.leaving.Load() { // else RST could overtake what the peer has not acknowledged, or take it from the peer
		select {
		case <-q.q.(*engine.QP).Gone():
		case <-time.After(farewellWait):
		}
	}
	done := make(chan error, 1)
	go func() { done <- q.q.Close() }()
	var err error
	select {
	case err = <-done:
	case <-time.After(destroyWait):
		s.log.Error("queue pair stays", "qp", q.handle, "error", errStuck)
		return errStuck
	}
	q.mem.Close()
	s.mu.Lock()
	q.pd.qps--
	q.send.users--
	q.recv.users--
	q.srq.use(-1)
	s.mu.Unlock()
	s.account.give(q.cost)
	return err
}

func (s *session) disconnect(a *control.Object) error {
	q, err := find(s, s.qps, a.Handle, "queue pair")
	if err != nil {
		return err
	}
	s.drain(q) // what the client posted before goes first
	q.leaving.Store(true)
	return q.q.Disconnect()
}

func (s *session) queryQP(a *control.Object) (any, error) {
	q, err := find(s, s.qps, a.Handle, "queue pair")
	if err != nil {
		return nil, err
	}
	s.drain(q)
	info, err := q.q.Info()
	return info, err
}
