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
	s := q.shard.Load()
	if s == nil {
		return verbs.ErrNotReady
	}
	if s.isEnded.Load() || q.closed.Load() {
		return verbs.ErrClosed
	}
	if err := q.checkSize(wr); err != nil {
		return err
	}
	if !q.sq.put(func(p *rdmap.SendWR) { copySend(p, wr) }) {
		return verbs.ErrQueueFull
	}
	s.Ring(&q.doorbell)
	return nil
}

func (q *QP) checkSize(wr *verbs.SendWR) error {
	if len(wr.SGL) > q.cfg.MaxSGE || len(wr.Inline) > q.cfg.MaxInline {
		return fmt.Errorf("%w: %d SGEs and %d inline bytes; the queue pair allows %d and %d",
			verbs.ErrInvalid, len(wr.SGL), len(wr.Inline), q.cfg.MaxSGE, q.cfg.MaxInline)
	}
	return nil
}

// PostRecv implements verbs.QP.
func (q *QP) PostRecv(wr *verbs.RecvWR) error {
	if q.srq != nil {
		return fmt.Errorf("%w: the queue pair receives from an SRQ: post to it", verbs.ErrInvalid)
	}
	if len(wr.SGL) > q.cfg.MaxSGE {
		return fmt.Errorf("%w: %d SGEs; the queue pair allows %d", verbs.ErrInvalid, len(wr.SGL),
			q.cfg.MaxSGE)
	}
	s := q.shard.Load()
	if s != nil && s.isEnded.Load() || q.closed.Load() {
		return verbs.ErrClosed
	}
	if !q.rq.put(func(p *rdmap.RecvWR) { copyRecv(p, wr) }) {
		return verbs.ErrQueueFull
	}
	if s = q.shard.Load(); s != nil {
		s.Ring(&q.doorbell)
	}
	return nil
}

// PostSendOn is PostSend for xdp.Config.Consumer, which passes its argument as queue. If q has its connection on that
// queue, the request goes directly into the protocol and is sent at the end of the turn, without the lock, the copy and
// the doorbell of PostSend. Otherwise it does the same as PostSend: when q belongs to another queue, when q is not
// connected, when requests are queued already, and when the protocol has no room. Only the callback may call it, on its
// own goroutine.
func (q *QP) PostSendOn(queue int, wr *verbs.SendWR) error {
	if !q.onConsumerThread(queue) || q.sq.len() > 0 {
		return q.PostSend(wr)
	}
	if err := q.checkSize(wr); err != nil {
		return err
	}
	if !q.postToRDMAP(wr) {
		return q.PostSend(wr)
	}
	q.iw.Schedule()
	return nil
}

// PostRecvOn is PostRecv for xdp.Config.Consumer, which passes its argument as queue. If q has its connection on that
// queue, the receive goes directly into the protocol, without a lock, a copy and a doorbell. Otherwise it does the same
// as PostRecv. Only the callback may call it, on its own goroutine.
func (q *QP) PostRecvOn(queue int, wr *verbs.RecvWR) error {
	straight := q.srq == nil && q.rq.len() == 0 && len(wr.SGL) <= q.cfg.MaxSGE
	if !q.onConsumerThread(queue) || !straight || !q.recvToRDMAP(wr) {
		return q.PostRecv(wr)
	}
	q.iw.Schedule()
	return nil
}

// onConsumerThread reports whether the caller is the consumer of the queue whose worker owns q, so that it may use
// fields of the worker.
func (q *QP) onConsumerThread(queue int) bool {
	s := q.shard.Load()
	return s != nil && s.Queue == queue && s.Consuming &&
		q.hasReached(lifeEstablished) && q.iw != nil
}

// TakePosted implements doorbellTarget. If the queue pair has moved to another worker since the doorbell was rung, it
// rings that worker.
func (q qpDoorbell) TakePosted(s *Shard) (taken int) {
	switch owner := q.shard.Load(); owner {
	case s:
		taken, _ = q.takePosted()
		if q.iw != nil {
			q.iw.Schedule()
		}
	case nil: // bind takes the posted requests
	default:
		owner.Ring(&q.doorbell)
	}
	return taken
}

// takePosted moves posted requests into the protocol as far as that has room, up to the limit of a visit. When there
// may be more, it requeues the doorbell. It runs on the worker.
func (q *QP) takePosted() (taken int, more bool) {
	s := q.shard.Load()
	if !q.hasReached(lifeEstablished) || s == nil {
		return 0, false
	}
	most := s.requestLimits().visit
	if s.isEnded.Load() { // the worker has ended: no other turn follows
		most = math.MaxInt
	}
	taken = q.rdma.ExecuteLocals(most)
	taken += q.takeRecvs(most - taken)
	for p := q.sq.peek(); p != nil && taken < most && q.postToRDMAP(p); p = q.sq.peek() {
		q.sq.advance()
		taken++
	}
	if more = taken >= most || q.rdma.HasWaitingLocals(); more {
		s.requeue(&q.doorbell)
	}
	return taken, more
}

// takeRecvs moves up to most posted receives into the protocol, and returns how many.
func (q *QP) takeRecvs(most int) (taken int) {
	for p := q.rq.peek(); p != nil && taken < most && q.recvToRDMAP(p); p = q.rq.peek() {
		q.rq.advance()
		taken++
	}
	return taken
}

// postToRDMAP moves one send request into the protocol. A request that the protocol refuses completes with an error in
// its turn, and ends the connection. It returns false when there is no room yet, and before the protocol has started on
// the connection.
func (q *QP) postToRDMAP(wr *verbs.SendWR) bool {
	err := q.rdma.PostSend(wr)
	if err != nil && !errors.Is(err, rdmap.ErrFull) && !errors.Is(err, rdmap.ErrState) {
		st := verbs.LocQPOpErr
		if errors.Is(err, rdmap.ErrTooLong) {
			st = verbs.LocLenErr
		}
		err = q.rdma.PostRefused(wr, st)
	}
	switch {
	case err == nil:
	case errors.Is(err, rdmap.ErrFull),
		q.rdma.State() == rdmap.Idle && !q.hasReached(lifeDisconnected):
		return false
	default: // the connection has ended
		st := q.rdma.FlushStatus()
		if wr.Flags&rdmap.Chained == 0 { // the next request completes a chained one
			q.Complete(&rdmap.Completion{ID: wr.ID, Op: wr.Op, Status: st, Flags: wr.Flags.Mark()})
		}
	}
	return true
}

// OnEmpty sets f, which q's worker calls when a message finds no receive in the protocol, before the lack ends the
// connection or makes the message wait. f may post receives and must not block. OnEmpty must be called before q has a
// connection.
func (q *QP) OnEmpty(f func()) { q.onEmpty = f }

// refill is rdmap.Config.Refill: it moves posted receives into the protocol, at most loneLimits.visit, whether or not
// their doorbell was served.
func (q *QP) refill() {
	if q.onEmpty != nil {
		q.onEmpty()
	}
	q.takeRecvs(loneLimits.visit)
}

// recvToRDMAP is postToRDMAP for a receive.
func (q *QP) recvToRDMAP(wr *verbs.RecvWR) bool {
	err := q.rdma.PostRecv(wr)
	switch {
	case err == nil:
	case errors.Is(err, rdmap.ErrFull):
		return false
	default: // the connection has ended; PostRecv has checked the rest
		q.Complete(&rdmap.Completion{ID: wr.ID, Op: rdmap.WRRecv, Status: rdmap.WRFlushErr,
			Flags: wr.Flags.Mark()})
	}
	return true
}

// Complete implements rdmap.Completer.
func (q *QP) Complete(c *rdmap.Completion) {
	cq := q.send
	if c.Op == rdmap.WRRecv {
		cq = q.recv
	}
	q.comp = verbs.Completion{Completion: *c, QP: q}
	if !cq.push(&q.comp, q.shard.Load()) {
		q.overran = true
	}
	if q.srq != nil && c.Op == rdmap.WRRecv { // the worker's own SRQ has room again
		q.srq.starved.ring()
	}
}

// takeUnrung takes posted requests, unless their doorbell has its turn soon, and fails q after a completion queue
// overrun. It runs on the worker before the connection transmits.
func (q *QP) takeUnrung() {
	if q.doorbell.queuedOn.Load() == nil &&
		(q.sq.len() > 0 || q.rq.len() > 0 || q.rdma.HasWaitingLocals()) {
		q.takePosted()
	}
	if q.overran {
		q.overran = false
		q.rdma.Fail(ulpdu.Newf(ulpdu.RDMAP, 0, 0, "completion queue overrun"))
	}
}

// compareAndSwap makes RFC 7306 atomics atomic against other workers and against consumers that use sync/atomic.
func compareAndSwap(addr *uint64, old, new uint64) bool {
	return atomic.CompareAndSwapUint64(addr, old, new)
}
