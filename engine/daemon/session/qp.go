package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"xwarp/ddp/rdmap"
	"xwarp/engine/budget"
	"xwarp/engine/daemon/control"
	"xwarp/engine/guard"
	"xwarp/engine/internal/core"
	"xwarp/engine/verbs"
	"xwarp/mpa/ulpdu"
)

// qp is a queue pair of a session: the engine's queue pair, and the rings in which the program posts.
type qp struct {
	object
	s          *Session
	number     uint32 // unique in the daemon
	device     string // name of its device
	cfg        verbs.QPConfig
	eng        *core.QP
	pd         *pd
	send, recv *cq
	srq        *srq     // nil if there is none
	attempt    *attempt // the connect or accept in progress; nil: none; guarded by Session.mu

	connected     atomic.Bool     // it has or had a connection, or never gets one: sends go into the engine
	gaveUp        atomic.Bool     // its program moved it to ERR before it had a connection
	failureLogged atomic.Bool     // the first failed completion was logged
	ended         context.Context // done when the queue pair is destroyed or reset, or the session ends
	end           func()
	discarded     atomic.Bool              // it was reset: completions are dropped
	roce          atomic.Pointer[roceConn] // set when ibv_modify_qp moves it to RTR; nil before, and with rdma_cm
	twin          *core.QP                 // nil unless the queue pair is its own peer, see self.go
	twinCost      budget.Amounts

	// guarded by Session.pumpMu
	posterState
	recvRing
	sq       *control.Consumer
	inline   int
	sendBuf  []byte
	sendWR   rdmap.SendWR
	nextWR   rdmap.SendWR // follows sendWR if isSplit
	isSplit  bool
	sendHeld bool // sendWR is parsed and waits for room in the engine's queue
}

func (*qp) String() string { return "queue pair" }

func (q *qp) numbers() (kind, object string) {
	return "qp", fmt.Sprintf("lqpn %d qp_num %d", q.handle, q.number)
}

func (q *qp) busy() error {
	return busyIf(q.attempt != nil,
		"ibv_destroy_qp: the queue pair is being connected; cancel that first")
}

// attempt is a connect or accept in progress.
type attempt struct {
	cancel func()
	done   chan struct{} // closed at its end
}

func newAttempt(cancel func()) *attempt { return &attempt{cancel, make(chan struct{})} }

// endAttempt ends the attempt of q. If connected is true, Sends go into the engine from now on.
func (s *Session) endAttempt(q *qp, connected bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if connected {
		q.connected.Store(true)
	}
	q.attempt.cancel()
	close(q.attempt.done)
	q.attempt = nil
}

// unusedLocked returns an error unless q can get a connection. It must be called with Session.mu held.
func (q *qp) unusedLocked() error {
	if q.connected.Load() || q.roce.Load() != nil {
		return verbs.ErrHasConn
	}
	return busyIf(q.attempt != nil, "the queue pair is being connected")
}

// orNone returns n, or -1 for 0: in a verbs.QPConfig 0 means the default, and -1 means 0.
func orNone(n int) int { return cmp.Or(n, verbs.None) }

// qpConfig returns the configuration that a asks for. The defaults are filled in, so 0 means 0.
func qpConfig(a *control.CreateQPArgs) (verbs.QPConfig, error) {
	c := verbs.QPConfig{
		SendDepth: a.SendDepth, RecvDepth: a.RecvDepth, MaxSGE: a.MaxSGE, MaxInline: a.MaxInline,
		IRD: a.IRD, ORD: a.ORD,
	}.Complete()
	for _, l := range []struct {
		name             string
		got, least, most int
	}{
		{"send_depth", c.SendDepth, 1, control.MaxDepth},
		{"recv_depth", c.RecvDepth, 1, control.MaxDepth},
		{"max_sge", c.MaxSGE, 1, rdmap.MaxSGE}, {"max_inline", c.MaxInline, 0, rdmap.MaxInline},
		{"ird", c.IRD, 0, rdmap.MaxIRD}, {"ord", c.ORD, 0, rdmap.MaxORD},
	} {
		if l.got < l.least || l.got > l.most {
			return c, fmt.Errorf("%w: ibv_create_qp: %s = %d, want %d to %d", verbs.ErrInvalid,
				l.name, l.got, l.least, l.most)
		}
	}
	return c, nil
}

func (s *Session) createQP(a *control.CreateQPArgs) (any, error) {
	c, err := qpConfig(a)
	if err != nil {
		return nil, err
	}
	q := &qp{s: s, device: s.dev.Name}
	if q.pd, err = find[*pd](s, a.PD); err != nil {
		return nil, err
	}
	if q.send, err = find[*cq](s, a.SendCQ); err != nil {
		return nil, err
	}
	if q.recv, err = find[*cq](s, a.RecvCQ); err != nil {
		return nil, err
	}
	if a.SRQ != 0 {
		if q.srq, err = find[*srq](s, a.SRQ); err != nil {
			return nil, err
		}
		c.SRQ = q.srq.eng
	}
	c.PD, c.SendCQ, c.RecvCQ, c.UserData = q.pd.pd, q.send.eng, q.recv.eng, q
	q.cost = s.qpCost(&c)
	q.cfg, q.number = c, s.rendezvous.numbers.Take()
	q.ended, q.end = context.WithCancel(s.ctx)
	result, err := charge(s, q.cost, func() (any, error) { return q.create(c) })
	if err != nil {
		q.endRendezvous()
		s.rendezvous.numbers.Return(q.number)
		return nil, err
	}
	return withFiles{result, []int{q.mem.TakeFd()}}, nil
}

// ringLayout returns the layout of the rings of a queue pair in their memory, and its length in bytes. With a shared
// receive queue there is no ring for receives.
func ringLayout(c *verbs.QPConfig) (send control.Geometry, recv *control.Geometry, n uint32) {
	send = control.NewGeometry(0, c.SendDepth, control.SendSlot(c.MaxSGE, c.MaxInline))
	if c.SRQ != nil {
		return send, nil, send.After()
	}
	recv = new(control.NewGeometry(send.After(), c.RecvDepth, control.RecvSlot(c.MaxSGE)))
	return send, recv, recv.After()
}

// create creates the rings and the engine's queue pair, and adds q to the table.
func (q *qp) create(c verbs.QPConfig) (*control.CreateQPResult, error) {
	s := q.s
	res := &control.CreateQPResult{Number: q.number, MaxSGE: c.MaxSGE, MaxInline: c.MaxInline}
	var byteCount uint32
	res.Send, res.Recv, byteCount = ringLayout(&c)
	mem, err := s.mapper.NewMemory(s, "xwarp-qp", int(byteCount))
	if err != nil {
		return nil, err
	}
	q.mem, q.sge, q.inline = mem, c.MaxSGE, c.MaxInline
	q.sendBuf = make([]byte, res.Send.SlotSize)
	q.sq, err = control.NewConsumer(mem.Mem, res.Send)
	if err == nil && res.Recv != nil {
		q.buf = make([]byte, res.Recv.SlotSize)
		q.rq, err = control.NewConsumer(mem.Mem, *res.Recv)
	}
	if err == nil {
		err = q.makeEngine()
	}
	if err == nil {
		q.to = q.eng
		if err = s.addPoster(q); err != nil {
			q.eng.Close()
		}
	}
	if err != nil {
		mem.Close()
		return nil, err
	}
	s.mu.Lock()
	res.Handle = s.addObject(q)
	q.addUsers(1)
	s.mu.Unlock()
	go q.watch()
	res.Bell = q.bell
	return res, nil
}

// makeEngine creates the engine's queue pair.
func (q *qp) makeEngine() (err error) {
	c := q.cfg
	c.MaxInline, c.IRD, c.ORD = orNone(c.MaxInline), orNone(c.IRD), orNone(c.ORD)
	if q.eng, err = q.s.dev.Core.NewQP(c); err != nil {
		return err
	}
	eng := q.eng
	eng.SetUser(q.s.account)
	eng.OnEmpty(func() { q.s.refill(q) })
	eng.WaitForReceives()
	return nil
}

// endRendezvous ends the attempts of ibv_modify_qp to connect q, and the goroutines that wait for the end of q.
func (q *qp) endRendezvous() {
	q.end()
	if h := q.roce.Load(); h != nil {
		h.cancelAndDrop()
	}
}

// addUsers adds n to the user counts of the objects of q. It must be called with Session.mu held.
func (q *qp) addUsers(n int) {
	q.pd.qps += n
	q.send.users += n
	q.recv.users += n
	if q.srq != nil {
		q.srq.users += n
	}
}

// watch sends an event when the connection has ended, and with a shared receive queue another one when no more
// completions of receives can follow. It sends neither if the queue pair was reset or onEnd of its roceConn returned
// true, and not the first if the program moved the queue pair to ERR before it had a connection.
func (q *qp) watch() {
	defer guard.Recover(q.s.onDefect("watching a queue pair"))
	if !q.waitFor(q.eng.Done()) {
		return
	}
	if h := q.roce.Load(); h != nil && h.onEnd(q.eng.Err()) || q.discarded.Load() {
		return
	}
	if !q.gaveUp.Load() { // otherwise its program moved it to ERR itself, and by now perhaps to RESET
		q.sendEnd(control.EventDown)
	}
	if q.srq != nil && q.waitFor(q.receiver().Gone()) {
		q.sendEnd(control.EventGone)
	}
}

// receiver returns the engine's queue pair that receives for q.
func (q *qp) receiver() *core.QP { return cmp.Or(q.twin, q.eng) }

// waitFor waits until a channel is closed. It returns false if the queue pair or the session ends first. A program that
// destroys its queue pair right after the end of the connection still gets the event.
func (q *qp) waitFor(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	case <-q.ended.Done():
		return isDone(c)
	}
}

// sendEnd sends an event with the reason for the end of the connection.
func (q *qp) sendEnd(event string) {
	err := q.eng.Err()
	q.s.sendEvent(&control.Event{Event: event, QP: q.handle, Error: control.AsError(err),
		Cause: errorCause(err)})
}

// isClosing reports whether the connection has ended for the program while TCP is still closing it.
func (q *qp) isClosing() bool {
	return isDone(q.eng.Done()) && !isDone(q.eng.Gone())
}

func isDone(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// errorCause returns the cause of an error reported by a Terminate message (RFC 5040, 4.8). It is empty for others: a
// lost connection is not a protocol error.
func errorCause(err error) string {
	e := (*ulpdu.Error)(nil)
	switch {
	case !errors.As(err, &e), e.Layer == ulpdu.MPA && e.Code == lostConnection:
		return ""
	case e.Layer != ulpdu.MPA && e.Type == 1: // RDMAP: remote protection; DDP: a tagged buffer
		return control.CauseAccess
	case e.Layer != ulpdu.MPA && e.Type == 2: // RDMAP: remote operation; DDP: an untagged buffer
		return control.CauseRequest
	}
	return control.CauseFatal
}

// lostConnection is MPA's error code for a lost TCP connection (RFC 5044, 8).
const lostConnection = 1

// sendEvent sends an event to the program. If that fails, the session ends.
func (s *Session) sendEvent(e *control.Event) {
	if err := s.conn.Send(control.KindEvent, control.Marshal(e)); err != nil {
		s.Fail(err)
	}
}

// errStuck is returned if the engine does not close a queue pair in time.
var errStuck = errors.New("the queue pair is still closing and counts against the limits until it is closed")

// closeQP ends the connection and closes q, which must have been removed from the table. If that takes longer than
// destroyWait, it returns errStuck and closes q later.
func (s *Session) closeQP(q *qp) error {
	q.endRendezvous()
	eng := q.eng
	if q.roce.Load() != nil && q.connected.Load() {
		eng.Disconnect() // gracefully if nothing is outstanding, so that the peer sees no abort
	}
	eng.AwaitOrderlyEnd()
	return s.closeInTime(q, func() error {
		if eng.Abort() == nil {
			s.drain(q) // the engine flushes earlier posts
		}
		err := eng.Close()
		q.closeTwin()
		s.removePoster(q)
		q.mem.Close()
		s.mu.Lock()
		q.addUsers(-1)
		s.mu.Unlock()
		s.account.Release(q.cost)
		s.rendezvous.numbers.Return(q.number)
		return err
	})
}

// closeInTime calls end, which closes the engine's queue pair of q, and returns its error. If end takes longer than
// destroyWait, closeInTime returns errStuck, and end goes on in the background.
func (s *Session) closeInTime(q *qp, end func() error) error {
	done := make(chan error, 1)
	s.closingQPs.Go(func() { done <- end() })
	select {
	case err := <-done:
		return err
	case <-time.After(destroyWait):
		s.log.Error("queue pair still closing: it counts against the limits until it is closed", "qp", q.handle, "error", errStuck)
		return errStuck
	}
}

func (s *Session) modifyQP(a *control.ModifyQPArgs) error {
	q, err := find[*qp](s, a.Handle)
	if err != nil {
		return err
	}
	if a.Access != nil {
		err = q.receiver().Allow(*a.Access)
	}
	if a.DSCP != nil && err == nil {
		err = q.eng.SetDSCP(s.dscp(*a.DSCP))
	}
	return err
}

func (s *Session) disconnect(q *qp) (any, error) {
	s.drain(q) // earlier work requests go first
	return nil, q.eng.Disconnect()
}

func (s *Session) queryQP(q *qp) (any, error) {
	s.drain(q)
	return q.eng.Info()
}
