package core

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"xwarp/ddp/rdmap"
	"xwarp/engine/verbs"
	"xwarp/mpa/ulpdu"
)

// PostSend implements verbs.QP.
func (q *QP) PostSend(wr *verbs.SendWR) error {
	l := q.loop.Load()
	if l == nil {
		return verbs.ErrNotReady
	}
	if l.over.Load() || q.closed.Load() {
		return verbs.ErrClosed
	}
	if err := q.fits(wr); err != nil {
		return err
	}
	if !q.sq.put(func(p *postedSend) { p.load(wr) }) {
		return verbs.ErrQueueFull
	}
	l.Ring(&q.doorbell)
	return nil
}

func (q *QP) fits(wr *verbs.SendWR) error {
	if len(wr.SGL) > q.cfg.MaxSGE || len(wr.Inline) > q.cfg.MaxInline {
		return fmt.Errorf("%w: %d pieces and %d inline bytes, the queue pair takes %d and %d",
			verbs.ErrInvalid, len(wr.SGL), len(wr.Inline), q.cfg.MaxSGE, q.cfg.MaxInline)
	}
	return nil
}

// PostRecv implements verbs.QP.
func (q *QP) PostRecv(wr *verbs.RecvWR) error {
	if q.srq != nil {
		return fmt.Errorf("%w: the queue pair takes its receives from an SRQ", verbs.ErrInvalid)
	}
	if len(wr.SGL) > q.cfg.MaxSGE {
		return fmt.Errorf("%w: %d pieces, the queue pair takes %d", verbs.ErrInvalid, len(wr.SGL),
			q.cfg.MaxSGE)
	}
	l := q.loop.Load()
	if l != nil && l.over.Load() || q.closed.Load() {
		return verbs.ErrClosed
	}
	if !q.rq.put(func(p *postedRecv) { p.load(wr) }) {
		return verbs.ErrQueueFull
	}
	if l = q.loop.Load(); l != nil {
		l.Ring(&q.doorbell)
	}
	return nil
}

// PostSendOn is PostSend for xdp.Config.Consumer, called with its argument, the queue: a request for a queue
// pair that has its connection there goes straight into the protocol and leaves at the end of the turn,
// without the lock, the copy and the doorbell that carry it from one thread to another. It does what PostSend
// does where that is not possible: for queue pairs of other queues and for those that are not connected, and
// behind requests that are queued. Only the callback may call it, on the goroutine that it was called on.
func (q *QP) PostSendOn(queue int, wr *verbs.SendWR) error {
	if !q.here(queue) || q.sq.len() > 0 {
		return q.PostSend(wr)
	}
	if err := q.fits(wr); err != nil {
		return err
	}
	if !q.give(wr) {
		return q.PostSend(wr)
	}
	q.iw.Wake()
	return nil
}

// PostRecvOn is to PostRecv what PostSendOn is to PostSend.
func (q *QP) PostRecvOn(queue int, wr *verbs.RecvWR) error {
	straight := q.srq == nil && q.rq.len() == 0 && len(wr.SGL) <= q.cfg.MaxSGE
	if !q.here(queue) || !straight || !q.giveRecv(wr) {
		return q.PostRecv(wr)
	}
	q.iw.Wake()
	return nil
}

// here reports whether the caller, the consumer of a queue, may use what belongs to q's worker.
func (q *QP) here(queue int) bool {
	l := q.loop.Load()
	return l != nil && l.Queue == queue && l.Consuming && q.is(lifeEstablished) && q.iw != nil
}

// kick runs on the worker of l after the doorbell was rung. The queue pair may have another one since then.
func (q qpBell) Kick(l *Shard) (taken int) {
	switch owner := q.loop.Load(); owner {
	case l:
		taken, _ = q.drain()
		if q.iw != nil {
			q.iw.Wake()
		}
	case nil: // the next one looks at what was posted
	default:
		owner.Ring(&q.doorbell)
	}
	return taken
}

// drain moves posted requests into the protocol as far as that has room, up to requestsPerVisit. When there may be more
// it has the worker come back. It runs on the worker.
func (q *QP) drain() (taken int, more bool) {
	l := q.loop.Load()
	if !q.is(lifeEstablished) || l == nil {
		return 0, false
	}
	most := requestsPerVisit
	if l.over.Load() { // nothing is posted any more, and there is no other turn
		most = math.MaxInt
	}
	taken = q.core.ExecuteLocals(most)
	taken += q.drainRecvs(most - taken)
	for p := q.sq.peek(); p != nil && taken < most && q.give(&p.SendWR); p = q.sq.peek() {
		q.sq.drop()
		taken++
	}
	if more = taken >= most || q.core.HasWaitingLocals(); more {
		l.again(&q.doorbell)
	}
	return taken, more
}

// drainRecvs moves up to most posted receives into the protocol, and returns how many.
func (q *QP) drainRecvs(most int) (taken int) {
	for p := q.rq.peek(); p != nil && taken < most && q.giveRecv(&p.RecvWR); p = q.rq.peek() {
		q.rq.drop()
		taken++
	}
	return taken
}

// give moves one send request into the protocol, which completes it when it refuses it. False: there is no room yet.
func (q *QP) give(wr *verbs.SendWR) bool {
	err := q.core.PostSend(wr)
	switch {
	case err == nil:
	case errors.Is(err, rdmap.ErrFull), errors.Is(err, rdmap.ErrState) &&
		q.core.State() == rdmap.Idle && !q.is(lifeDisconnected):
		return false
	default:
		q.Complete(&rdmap.Completion{ID: wr.ID, Op: wr.Op, Status: postStatus(err),
			Flags: wr.Flags.Mark()})
	}
	return true
}

// OnEmpty has f called on q's worker when a message finds no receive, before that ends the connection: f may post
// some. It must not block, and is set before q has a connection.
func (q *QP) OnEmpty(f func()) { q.more = f }

// refill is rdmap.Config.Refill: what was posted before the message came counts, also when its doorbell was not
// heard yet.
func (q *QP) refill() {
	if q.more != nil {
		q.more()
	}
	q.drainRecvs(requestsPerVisit)
}

// giveRecv is give for a receive.
func (q *QP) giveRecv(wr *verbs.RecvWR) bool {
	err := q.core.PostRecv(wr)
	switch {
	case err == nil:
	case errors.Is(err, rdmap.ErrFull):
		return false
	default:
		q.Complete(&rdmap.Completion{ID: wr.ID, Op: rdmap.WRRecv, Status: postStatus(err),
			Flags: wr.Flags.Mark()})
	}
	return true
}

// postStatus is the completion status for a request that the protocol refused.
func postStatus(err error) verbs.Status {
	switch {
	case errors.Is(err, rdmap.ErrState):
		return rdmap.WRFlushErr
	case errors.Is(err, rdmap.ErrTooLong):
		return rdmap.LocLenErr
	}
	return rdmap.LocQPOpErr
}

// Complete implements rdmap.Completer.
func (q *QP) Complete(c *rdmap.Completion) {
	cq := q.send
	if c.Op == rdmap.WRRecv {
		cq = q.recv
	}
	q.comp = verbs.Completion{ID: c.ID, QP: q, Op: c.Op, Status: c.Status, Flags: c.Flags,
		ByteLen: c.ByteLen, Imm: c.Imm, Invalidated: c.Invalidated}
	if !cq.push(&q.comp, q.loop.Load()) {
		q.overran = true
	}
}

// settle runs on the worker before its connection transmits.
func (q *QP) settle() {
	if q.doorbell.waits.Load() == nil &&
		(q.sq.len() > 0 || q.rq.len() > 0 || q.core.HasWaitingLocals()) {
		q.drain()
	}
	if q.overran {
		q.overran = false
		q.core.Fail(ulpdu.Newf(ulpdu.RDMAP, 0, 0, "completion queue overrun"))
	}
}

// compareAndSwap makes RFC 7306 atomics atomic against other workers and against consumers that use sync/atomic.
func compareAndSwap(addr *uint64, old, new uint64) bool {
	return atomic.CompareAndSwapUint64(addr, old, new)
}
