package rdmap

import (
	"encoding/binary"

	"xwarp/ddp"
	"xwarp/mpa/ulpdu"
)

// Silent reports whether delivery of a ULPDU that was placed out of order has no effect, so that MPA need not record
// it. That holds in full operation for a segment of an RDMA Write, except for the last one if private messages count
// it. If its STag is invalidated between placement and delivery, that is not noticed, which RFC 5041, 5.3, permits.
func (q *QP) Silent(hdr []byte, n int) bool {
	return q.state == RTS && len(hdr) >= 2 && ddp.Control(hdr[0]).Tagged() &&
		opcodeOf(hdr[1]) == OpWrite && !(q.params.Private && ddp.Control(hdr[0]).Last())
}

// Deliver reports that a placed ULPDU of n bytes and all before it have arrived. hdr is its first min(n, 18) bytes. It
// completes and executes messages, and invalidates STags. The caller passes an error, which ends the stream, to Fail.
func (q *QP) Deliver(hdr []byte, n int) *ulpdu.Error {
	if q.state != RTS {
		q.handle(EvFPDU)
		if q.ignoresSegments() {
			return nil
		}
		q.drainLocals()
	}
	q.Counters.SegmentsIn++
	if c := q.deliver(hdr, n); c != ddp.CauseNone {
		if q.memoryErr != nil {
			return q.memoryErr
		}
		e := q.reject(c, hdr, n)
		if !q.ignoresSegments() && len(hdr) >= 2 && opcodeOf(hdr[1]) == OpReadRequest {
			q.captureSegment(e, hdr, n, q.in.at(q.in.tail))
		}
		return e
	}
	return nil
}

// deliver delivers a segment whose header Place has checked.
func (q *QP) deliver(hdr []byte, n int) ddp.Cause {
	if ddp.Control(hdr[0]).Tagged() {
		var h ddp.Tagged
		h.Decode(hdr)
		if opcodeOf(h.ULP) == OpWrite {
			c := q.recheckWrite(&h, n-ddp.TaggedLen)
			if c == ddp.CauseNone && h.Control.Last() {
				q.countDelivered(h.ULP)
			}
			return c
		}
		return q.deliverResponse(&h, n-ddp.TaggedLen)
	}
	var h ddp.Untagged
	h.Decode(hdr)
	switch h.QN {
	case QNSend:
		return q.deliverSend(&h, n-ddp.UntaggedLen)
	case QNRead:
		return q.deliverRequest(&h)
	case QNTerminate:
		return q.deliverTerminate()
	case QNReport:
		return ddp.CauseNone
	default:
		return q.deliverAtomicResponse(&h)
	}
}

// recheckWrite checks whether the STag was invalidated after the segment had been placed out of order.
func (q *QP) recheckWrite(h *ddp.Tagged, n int) ddp.Cause {
	if n <= 0 || q.cfg.Table.Unchanged(&q.lookup, h.STag) {
		return ddp.CauseNone
	}
	_, _, f := q.findRemote(h.STag, h.TO, n, ddp.RemoteWrite)
	return ddp.TaggedCause(f)
}

// deliverSend delivers the next segment of the current message of queue 0. The segments of a message arrive in the
// order of their offsets, as RFC 5041, 5.3 recommends and all known peers do.
func (q *QP) deliverSend(h *ddp.Untagged, n int) ddp.Cause {
	m := &q.msg
	if m.rtrSend {
		if h.MSN != 1 {
			return ddp.CauseMSNRange
		}
		m.rtrSend = false
		return ddp.CauseNone
	}
	if h.MSN != q.rq.next {
		return ddp.CauseMSNRange
	}
	if !m.open {
		*m = inboundMessage{open: true, op: opcodeOf(h.ULP), invalidate: h.ULPWord}
	}
	if m.op != opcodeOf(h.ULP) {
		return CauseOpcode
	}
	if uint32(h.MO) != m.received {
		return ddp.CauseMO
	}
	m.received += uint32(n)
	if !h.Control.Last() {
		return ddp.CauseNone
	}
	c := q.completeRecv()
	if c == ddp.CauseNone {
		q.countDelivered(h.ULP)
	}
	return c
}

// completeRecv ends the message of queue 0: first the invalidation, then the completion.
func (q *QP) completeRecv() ddp.Cause {
	m := &q.msg
	w, c := q.rq.receiveFor(q.rq.next)
	if c != ddp.CauseNone {
		return c
	}
	out := &q.recvCQE
	*out = Completion{ID: w.id, Op: WRRecv, ByteLen: m.received, Flags: w.flags.Mark()}
	if m.op.Invalidates() {
		switch q.cfg.Table.InvalidateRemote(q.cfg.PD, q.cfg.Stream, ddp.STag(m.invalidate)) {
		case ddp.OK:
			out.Flags |= WithInvalidate
			out.Invalidated = ddp.STag(m.invalidate)
		case ddp.FaultSTag:
			return CauseOpInvalidate
		default:
			return CauseProtInvalidate
		}
	}
	switch m.op {
	case OpImm, OpImmSE:
		out.Flags |= WithImm
		out.Imm = w.imm
		if q.params.Private { // the length of the Write before it
			out.ByteLen = binary.BigEndian.Uint32(w.imm[4:])
			clear(out.Imm[4:])
		}
	case OpSendImm, OpSendImmSE:
		out.Flags |= WithImm | OfSend
		binary.BigEndian.PutUint32(out.Imm[:], m.invalidate)
	}
	if m.op.Solicited() {
		out.Flags |= Solicited
	}
	if q.rq.srq != nil {
		out.Flags |= FromSharedQueue
	}
	m.open = false
	q.rq.pop()
	q.Counters.SendsIn++
	q.cfg.Completer.Complete(out)
	return ddp.CauseNone
}

// deliverRequest queues a Read or Atomic Request. Its response is made later, in order.
func (q *QP) deliverRequest(h *ddp.Untagged) ddp.Cause {
	if h.MSN != q.in.nextMSN() {
		return ddp.CauseMSNRange
	}
	r := q.in.at(q.in.tail)
	r.atomic = opcodeOf(h.ULP) == OpAtomicReq
	r.sent, r.mr, r.mem[0] = 0, nil, nil
	if r.atomic {
		r.op, _, _ = ParseAtomicRequest(r.raw[:])
		if _, c := q.atomicTarget(&r.op); c != ddp.CauseNone {
			return c
		}
		q.Counters.AtomicsIn++
	} else {
		r.read, _, _ = ParseReadRequest(r.raw[:])
		if r.read.Size > 0 {
			_, _, f := q.findRemote(r.read.SrcSTag, r.read.SrcTO, int(r.read.Size), ddp.RemoteRead)
			if f != ddp.OK {
				return protectionCause(f)
			}
		}
		q.Counters.ReadsIn++
	}
	q.in.tail++
	return ddp.CauseNone
}

// deliverResponse delivers the next segment of the response to the oldest Read.
func (q *QP) deliverResponse(h *ddp.Tagged, n int) ddp.Cause {
	if q.out.len() == 0 || q.out.first().atomic {
		return CauseOpcode
	}
	e := q.out.first()
	if n > 0 {
		off, f := e.offset(h, n)
		if f != ddp.OK {
			return ddp.TaggedCause(f)
		}
		if off != uint64(e.received) {
			return ddp.CauseBounds
		}
	}
	e.received += uint32(n)
	if !h.Control.Last() {
		return ddp.CauseNone
	}
	if e.received != e.size {
		return ddp.CauseBounds
	}
	q.completeResponse(e)
	return ddp.CauseNone
}

func (q *QP) deliverAtomicResponse(h *ddp.Untagged) ddp.Cause {
	if q.out.len() == 0 || !q.out.first().atomic {
		return CauseOpcode
	}
	e := q.out.first()
	r, _, _ := ParseAtomicResponse(e.resp[:])
	if h.MSN != e.msn {
		return ddp.CauseMSNRange
	}
	if r.ID != e.reqID {
		return CauseOpUnspecified
	}
	if !e.mr.Valid() {
		return ddp.CauseSTag
	}
	if q.putNative(e.mem, r.Value) != nil {
		return CauseCatastrophic
	}
	q.completeResponse(e)
	return ddp.CauseNone
}

// completeResponse removes the oldest Read or atomic. If it was the last one of its work request, that is answered.
func (q *QP) completeResponse(e *outboundRead) {
	seq, last := e.seq, e.last
	q.out.pop()
	if last && q.sq.has(seq) {
		q.sq.at(seq).answered = true
		q.completeFinished()
	}
	q.drainLocals()
}

// deliverTerminate ends the stream because the peer has sent a Terminate, which is never answered.
func (q *QP) deliverTerminate() ddp.Cause {
	t := &q.term
	t.peer, _ = ParseTerminate(t.raw[:t.rawLen])
	t.gotPeer = true
	q.Counters.TerminatesIn++
	q.setErr(t.peer.Cause.Errorf("peer said: %v", t.peer))
	q.markTerminatedWR(&t.peer)
	q.handle(EvPeerTerminate)
	return ddp.CauseNone
}

// markTerminatedWR marks the work request that the peer's Terminate refers to.
func (q *QP) markTerminatedWR(t *Terminate) {
	if !t.HasDDP {
		return
	}
	st := RemOpErr
	switch {
	case t.Cause.Type() == typeRemoteProtection: // RDMAP's, or DDP's of tagged buffers
		st = RemAccessErr
	case t.Cause.Layer() == ulpdu.DDP:
		st = RemInvReqErr
	}
	tagged, _, err := ddp.ParseTagged(t.DDP[:])
	untagged, _, _ := ddp.ParseUntagged(t.DDP[:])
	for i := q.sq.head; i != q.sq.firstUnfrozen(); i++ {
		w := q.sq.at(i)
		if w.status != Success {
			continue
		}
		match := false
		switch {
		case err == nil: // a Write; a Read Response is not in the send queue
			match = opcodeOf(tagged.ULP) == OpWrite && w.op == WRWrite && w.remote == tagged.STag &&
				uint64(tagged.TO-w.to) < max(uint64(w.total), 1)
		case untagged.QN == QNRead:
			match = w.wantsResponse() && int(untagged.MSN-w.msn) < w.requests()
		case untagged.QN == QNSend:
			match = w.op != WRWrite && !w.isLocal() && !w.wantsResponse() &&
				w.msn == untagged.MSN
		}
		if match {
			if w.op != WRRead && w.wantsResponse() && t.Cause == CauseStreamFatal {
				st = RemInvReqErr // the target of the atomic is not aligned (RFC 7306, 8.2)
			}
			w.status = st
			return
		}
	}
}
