package engine

import (
	"errors"

	"xwarp/ddp/rdmap"
	"xwarp/engine/verbs"
)

// PostSendOn is PostSend for XDPConfig.Consumer, called with its argument, the queue: a request for a queue
// pair that has its connection there goes straight into the protocol and leaves at the end of the turn,
// without the lock, the copy and the bell that carry it from one thread to another. It does what PostSend
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
	q.ses.Wake()
	return nil
}

// PostRecvOn is to PostRecv what PostSendOn is to PostSend.
func (q *QP) PostRecvOn(queue int, wr *verbs.RecvWR) error {
	if !q.here(queue) || q.rq.len() > 0 || len(wr.SGL) > q.cfg.MaxSGE || !q.giveRecv(wr) {
		return q.PostRecv(wr)
	}
	q.ses.Wake()
	return nil
}

// here reports whether the caller, the consumer of a queue, may use what belongs to q's worker.
func (q *QP) here(queue int) bool {
	l := q.loop.Load()
	return l != nil && l.queue == queue && l.consuming && q.is(lifeEstablished) && q.ses != nil
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
		q.Complete(&rdmap.Completion{ID: wr.ID, Op: wr.Op, Status: postStatus(err)})
	}
	return true
}

// giveRecv is give for a receive.
func (q *QP) giveRecv(wr *verbs.RecvWR) bool {
	err := q.core.PostRecv(wr)
	switch {
	case err == nil:
	case errors.Is(err, rdmap.ErrFull):
		return false
	default:
		q.Complete(&rdmap.Completion{ID: wr.ID, Op: rdmap.WRRecv, Status: postStatus(err)})
	}
	return true
}
