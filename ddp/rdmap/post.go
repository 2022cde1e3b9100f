package rdmap

import "xwarp/ddp"

// PostSend queues a send work request. It fails with ErrState, ErrFull, ErrOp, ErrSGE, ErrInline, ErrTooLong, ErrNoORD
// or ErrAtomicLen, and queues nothing then. Memory that is not registered, too short or without the right makes the
// work request complete with LocProtErr in its turn.
func (q *QP) PostSend(wr *SendWR) error {
	if q.state != RTS && q.state != RTR {
		return ErrState
	}
	if err := q.checkSend(wr); err != nil {
		return err
	}
	s := &q.sq
	w, err := q.fillSlot(wr)
	if err != nil {
		return err
	}
	w.acked, w.useInline, w.asks = false, false, false
	w.answered = !w.wantsResponse() && (!q.params.Private || w.isLocal())
	w.remote, w.to, w.inv, w.imm = wr.RemoteSTag, wr.RemoteTO, wr.Invalidate, wr.Imm

	need := ddp.Access(0)
	if w.wantsResponse() {
		need = ddp.LocalWrite
	}
	if w.mem.resolve(q.cfg.Table, q.cfg.PD, q.cfg.Stream, wr.SGL, need) != ddp.OK {
		w.status = LocProtErr
	}
	w.total = uint32(w.mem.total)
	switch wr.Op {
	case WRFetchAdd:
		w.atomic = AtomicRequest{Op: FetchAdd, STag: wr.RemoteSTag, TO: wr.RemoteTO, Data: wr.Data,
			Mask: wr.Mask, CompareMask: ^uint64(0)}
	case WRCmpSwap:
		w.atomic = AtomicRequest{Op: CmpSwap, STag: wr.RemoteSTag, TO: wr.RemoteTO, Data: wr.Data,
			Mask: wr.Mask, Compare: wr.Compare, CompareMask: wr.CompareMask}
	case WRImm, WRImmSE:
		w.total = ImmLen
	case WRBindMW:
		w.inv, w.access, w.atomic.Data = wr.Region, wr.Access, wr.Data
	default:
		if len(wr.Inline) > 0 {
			if cap(w.inline[0]) == 0 {
				s.allocInline(s.tail)
			}
			w.inline[0] = append(w.inline[0][:0], wr.Inline...)
			w.useInline, w.total = true, uint32(len(wr.Inline))
		}
	}
	q.endPost(w)
	return nil
}

// PostRefused queues a work request that PostSend refused with another error than ErrState and ErrFull. In its turn it
// completes with st, which ends the stream. PostRefused fails with ErrState or ErrFull.
func (q *QP) PostRefused(wr *SendWR, st Status) error {
	w, err := q.fillSlot(wr)
	if err == nil {
		w.status = st
		q.endPost(w)
	}
	return err
}

// fillSlot fills the fields of the next slot that every work request has.
func (q *QP) fillSlot(wr *SendWR) (*sendWQE, error) {
	s := &q.sq
	switch {
	case q.state != RTS && q.state != RTR:
		return nil, ErrState
	case s.tail-s.head >= s.depth:
		return nil, ErrFull
	}
	w := s.at(s.tail)
	w.id, w.op, w.flags, w.status, w.sent = wr.ID, wr.Op, wr.Flags, Success, 0
	return w, nil
}

// endPost puts the slot w into the queue, and executes local work requests whose turn has come.
func (q *QP) endPost(w *sendWQE) {
	q.sq.tail++
	if w.status != Success || w.isLocal() {
		q.sq.locals++
	}
	q.drainLocals()
}

// checkSend checks the form of wr, and not its memory.
func (q *QP) checkSend(wr *SendWR) error {
	limit := q.cfg.MaxSGE
	switch wr.Op {
	case WRSend, WRSendSE, WRSendInv, WRSendSEInv, WRWrite, WRRead:
	case WRSendImm, WRSendImmSE:
		if !q.params.Private {
			return ErrOp
		}
	case WRImm, WRImmSE, WRLocalInv, WRBindMW:
		limit = 0
	case WRFetchAdd, WRCmpSwap:
		limit = 1
	default:
		return ErrOp
	}
	rfc7306 := wr.Op == WRImm || wr.Op == WRImmSE || wr.Op == WRFetchAdd || wr.Op == WRCmpSwap
	if rfc7306 && q.params.Version != ddp.IETF {
		return ErrOp
	}
	if len(wr.SGL) > limit {
		return ErrSGE
	}
	if len(wr.Inline) > 0 && (!wr.Op.hasPayload() || len(wr.SGL) > 0 ||
		len(wr.Inline) > q.cfg.MaxInline) {
		return ErrInline
	}
	total := uint64(0)
	for i := range wr.SGL {
		total += uint64(wr.SGL[i].Len)
	}
	if total > MaxMessage {
		return ErrTooLong
	}
	if wr.Op.wantsResponse() && q.params.ORD == 0 {
		return ErrNoORD
	}
	if (wr.Op == WRFetchAdd || wr.Op == WRCmpSwap) && total != 8 {
		return ErrAtomicLen
	}
	return nil
}

// PostRecv queues a receive, also before Start. It fails with ErrState, ErrSRQ, ErrSGE or ErrFull. Memory that is not
// registered makes the receive complete with LocProtErr when a message arrives with a byte for it, which ends the
// stream.
func (q *QP) PostRecv(wr *RecvWR) error {
	if q.state == Terminated || q.state == Errored {
		return ErrState
	}
	r := &q.rq
	if r.srq != nil {
		return ErrSRQ
	}
	if len(wr.SGL) > q.cfg.MaxSGE {
		return ErrSGE
	}
	if r.tail-r.head >= r.depth {
		return ErrFull
	}
	r.own[r.tail&r.mask].load(q.cfg.Table, q.cfg.PD, q.cfg.Stream, wr)
	r.tail++
	return nil
}
