package rdmap

import (
	"xwarp/ddp"
	"xwarp/mpa/ulpdu"
)

// ExecuteLocals executes up to limit local work requests at the front of the send queue, those that send nothing, and
// returns how many. After the first call, the queue pair executes no more than limit of them until the next call: a
// queue full of them would delay the caller's other queue pairs. Before the first call there is no limit.
func (q *QP) ExecuteLocals(limit int) int {
	q.localsAllowed = limit
	q.drainLocals()
	return limit - q.localsAllowed
}

// HasWaitingLocals reports whether local work requests wait for ExecuteLocals.
func (q *QP) HasWaitingLocals() bool {
	return q.sq.locals > 0 && q.localsAllowed <= 0 && q.canExecuteLocal()
}

// canExecuteLocal reports whether a local work request is at the front of the send queue and may be executed.
func (q *QP) canExecuteLocal() bool {
	s := &q.sq
	if q.state != RTS || q.sending == sendMessage || q.rtrToSend != RTRNone || s.next == s.tail {
		return false
	}
	w := s.at(s.next)
	return w.status == Success && w.isLocal() && (w.flags&Fence == 0 || q.out.len() == 0)
}

// drainLocals executes the local work requests at the front of the send queue, as far as ExecuteLocals allows.
func (q *QP) drainLocals() {
	if q.sq.locals > 0 {
		q.drainLocalQueue()
	}
}

func (q *QP) drainLocalQueue() {
	if q.completing {
		return
	}
	s := &q.sq
	ran := false
	for q.localsAllowed > 0 && q.canExecuteLocal() {
		w := s.at(s.next)
		if e := q.executeLocal(w); e != nil {
			q.Fail(e)
			break
		}
		w.acked = true
		s.next++
		s.locals--
		q.localsAllowed--
		ran = true
	}
	q.failWrongFront()
	if ran {
		q.completeFinished()
	}
}

// failWrongFront ends the stream if the work request at the front of the send queue has an error.
func (q *QP) failWrongFront() {
	s := &q.sq
	if q.state != RTS || q.sending == sendMessage || q.rtrToSend != RTRNone || s.next == s.tail {
		return
	}
	if w := s.at(s.next); w.status != Success {
		q.Fail(CauseCatastrophic.Errorf("%v work request %d: %v", w.op, w.id, w.status))
	}
}

// executeLocal executes one local work request.
func (q *QP) executeLocal(w *sendWQE) *ulpdu.Error {
	if w.op == WRBindMW {
		b := ddp.Binding{STag: w.remote, Region: w.inv, TO: w.to, Len: w.atomic.Data,
			Access: w.access, ZeroBased: w.flags&ZeroBased != 0}
		if f := q.cfg.Table.Bind(q.cfg.PD, q.cfg.Stream, b); f != ddp.OK {
			w.status = MWBindErr
			return CauseCatastrophic.Errorf("binding STag %#08x to %d bytes of %#08x: %v",
				uint32(b.STag), b.Len, uint32(b.Region), f)
		}
		q.mayHaveWindows = true
		return nil
	}
	if f := q.cfg.Table.InvalidateLocal(q.cfg.PD, q.cfg.Stream, w.inv); f != ddp.OK {
		w.status = LocProtErr
		return CauseCatastrophic.Errorf("local invalidation of STag %#08x: %v", uint32(w.inv), f)
	}
	return nil
}

// unbind unbinds the windows of the queue pair.
func (q *QP) unbind() {
	if q.mayHaveWindows {
		q.cfg.Table.UnbindStream(q.cfg.Stream)
		q.mayHaveWindows = false
	}
}

// completeFinished completes finished work requests from the oldest on. Completions have the order of posting and stop
// at the first unfinished request. After an error flush completes the rest.
func (q *QP) completeFinished() {
	if q.completing {
		return
	}
	q.completing = true
	s := &q.sq
	for q.state == RTS && s.head != s.next && s.at(s.head).isDone() {
		q.completeSend(Success, false)
	}
	q.completing = false
	q.drainLocals()
}

// completeSend removes the oldest work request from the queue and completes it with st. With keep its memory stays
// held. A Chained request has no completion, nor has a successful one without Signaled.
func (q *QP) completeSend(st Status, keep bool) {
	w := q.sq.at(q.sq.head)
	if !keep {
		w.mem.release()
	}
	q.sq.head++
	if w.flags&Chained != 0 {
		if st != Success && q.sq.head == q.sq.tail {
			q.chained = st
		} else if next := q.sq.at(q.sq.head); st != Success && next.status == Success {
			next.status = st
		}
		return
	}
	if st == Success && w.flags&Signaled == 0 {
		return
	}
	q.sendCQE = Completion{ID: w.id, Op: w.op, Status: st, Flags: w.flags.Mark()}
	if st == Success {
		q.sendCQE.ByteLen = w.total
	}
	q.cfg.Completer.Complete(&q.sendCQE)
}

// FlushStatus returns the status of a work request that PostSend refused with ErrState. That is WRFlushErr, unless the
// one before it was Chained and failed.
func (q *QP) FlushStatus() Status {
	st := q.chained
	if q.chained = Success; st == Success {
		st = WRFlushErr
	}
	return st
}

// flush completes everything that is posted, each once, in the order of posting: the send queue, then the receive
// queue. The work request that caused the error has its own status. Memory that TCP may retransmit stays held, although
// its work request is complete, until releaseKept or until TCP has its acknowledgement.
func (q *QP) flush() {
	s := &q.sq
	if q.cfg.Reclaim != nil {
		q.cfg.Reclaim()
	}
	q.completing = true
	q.sending, q.rtrToSend = noMessage, RTRNone
	frozen := s.firstUnfrozen()
	s.kept += s.tail - s.head
	for s.head != s.tail {
		w := s.at(s.head)
		st := w.status
		if st == Success {
			st = WRFlushErr
			q.Counters.Flushed++
		}
		q.completeSend(st, s.head < frozen)
	}
	s.next, s.locals = s.tail, 0
	s.releaseAcked()
	q.in.next = q.in.tail
	q.out.reset()
	q.flushRecv()
	q.completing = false
}

// releaseKept releases the memory that flush kept, and that of Read Responses. A Terminate is not sent any more.
func (q *QP) releaseKept() {
	q.term.toSend = false
	for ; q.sq.kept > 0; q.sq.kept-- {
		q.sq.at(q.sq.head - q.sq.kept).mem.release()
	}
	for ; q.in.acked != q.in.tail; q.in.acked++ {
		q.in.at(q.in.acked).release()
	}
}

// flushRecv completes the posted receives.
func (q *QP) flushRecv() {
	r := &q.rq
	for n := r.len(); n > 0; { // leaves receives that Complete posts meanwhile
		if r.srq != nil && r.taken[uint32(r.next)&r.mask] < 0 {
			r.next++ // this message has taken no receive, although a later one, which arrived earlier, has
			continue
		}
		w := q.firstRecv()
		q.recvCQE = Completion{ID: w.id, Op: WRRecv, Status: w.status, Flags: w.flags.Mark()}
		c := &q.recvCQE
		if c.Status == Success {
			c.Status = WRFlushErr
			q.Counters.Flushed++
		}
		if r.srq != nil {
			c.Flags |= FromSharedQueue
		}
		n--
		r.pop()
		q.cfg.Completer.Complete(c)
	}
	q.msg.open = false
}

// firstRecv returns the receive of the next message, which must be there.
func (q *QP) firstRecv() *recvWQE {
	r := &q.rq
	if r.srq != nil {
		return &r.srq.wqes[r.taken[uint32(r.next)&r.mask]]
	}
	return &r.own[r.head&r.mask]
}
