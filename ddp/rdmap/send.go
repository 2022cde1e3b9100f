package rdmap

import (
	"xwarp/ddp"
	"xwarp/mpa/ulpdu"
)

// The ID of a ulpdu.Ref: the kind of the message, whether the ULPDU is its last, and which message it is. Off is the
// offset of the payload in the message.
const (
	refLast  = 1 << 63
	refShift = 60
	refSeq   = 1<<refShift - 1

	refSend      = 0 // a message of the send queue, whose index is in refSeq
	refResponse  = 1 // the response to a request of the peer, whose index is in refSeq
	refTerminate = 2
	refRTR       = 3
	refReport    = 4
)

func makeRef(kind, seq uint64, off uint32, last bool) ulpdu.Ref {
	r := ulpdu.Ref{ID: kind<<refShift | seq, Off: off}
	if last {
		r.ID |= refLast
	}
	return r
}

func splitRef(r ulpdu.Ref) (kind, seq uint64, last bool) {
	return r.ID >> refShift & 7, r.ID & refSeq, r.ID&refLast != 0
}

// ULPDUWaiting reports whether NextULPDU would return one now.
func (q *QP) ULPDUWaiting() bool {
	if q.term.toSend || q.state != RTS {
		return q.term.toSend || q.reportsLast()
	}
	return q.sending != noMessage || q.rtrToSend != RTRNone || q.reportReady() || q.sendReady() ||
		q.responseReady()
}

// NextULPDU freezes the next ULPDU of at most limit bytes, and returns its name and length. limit is at least MinULPDU.
// Length 0 means that there is nothing to send. A message is sent whole before another one begins. Responses and the
// send queue alternate.
func (q *QP) NextULPDU(limit int) (ref ulpdu.Ref, n int) {
	if limit < MinULPDU {
		return ref, 0
	}
	if !q.term.toSend && q.state == RTS {
		reports := q.sending == noMessage && q.reportReady()
		if q.rtrToSend == RTRNone && q.sending == noMessage && !reports {
			q.sending = q.nextMessage()
		}
		switch {
		case q.rtrToSend != RTRNone:
			ref, n = q.freezeRTR()
		case reports:
			ref, n = q.freezeReport()
		case q.sending == sendMessage:
			ref, n = q.freezeSend(limit)
		case q.sending == responseMessage:
			ref, n = q.freezeResponse(limit)
		}
	}
	switch {
	case n > 0:
	case q.term.toSend && q.progress.due, q.reportsLast():
		ref, n = q.freezeReport() // it tells the peer which of its messages were delivered
	case q.term.toSend:
		ref, n = q.freezeTerminate()
	}
	if n > 0 {
		q.Counters.SegmentsOut++
	}
	return ref, n
}

// reportsLast reports whether a Report is sent before the FIN of a graceful close. The peer may wait for the Report: it
// covers messages delivered before the close.
func (q *QP) reportsLast() bool { return q.state == Closing && q.progress.due }

// nextMessage chooses the message to send next.
func (q *QP) nextMessage() messageKind {
	ready := q.sendReady()
	if (!q.responseWasLast || !ready) && q.responseReady() {
		q.responseWasLast = true
		return responseMessage
	}
	if !ready {
		return noMessage
	}
	q.responseWasLast = false
	q.progress.noteBegun()
	return sendMessage
}

// sendReady reports whether the send queue's next message may begin.
func (q *QP) sendReady() bool {
	s := &q.sq
	if s.next == s.tail || q.progress.peerWaits {
		return false
	}
	w := s.at(s.next)
	if w.status != Success || w.isLocal() {
		return false
	}
	if w.flags&Fence != 0 && w.sent == 0 && q.out.len() > 0 {
		return false
	}
	return !w.wantsResponse() || q.out.len() < max(q.params.ORD, 1)
}

// freezeSend freezes the next segment of the send queue's message.
func (q *QP) freezeSend(limit int) (ulpdu.Ref, int) {
	s := &q.sq
	w, seq := s.at(s.next), s.next
	switch w.op {
	case WRRead, WRFetchAdd, WRCmpSwap:
		return q.freezeRequest(w, seq)
	case WRWrite:
		return q.freezeSegment(w, seq, limit, ddp.TaggedLen)
	}
	if w.sent == 0 {
		w.msn = s.sendMSN
	}
	return q.freezeSegment(w, seq, limit, ddp.UntaggedLen)
}

// freezeSegment freezes the next segment of a message with payload.
func (q *QP) freezeSegment(w *sendWQE, seq uint64, limit, header int) (ulpdu.Ref, int) {
	off := w.sent
	n := min(uint64(limit-header), uint64(w.total-off))
	w.sent += uint32(n)
	q.Counters.PayloadOut += n
	last := w.sent == w.total
	if last {
		if q.params.Private {
			q.countSent(w)
		}
		q.finishSend(header == ddp.UntaggedLen)
	}
	return makeRef(refSend, seq, off, last), header + int(n)
}

// finishSend advances to the next work request.
func (q *QP) finishSend(untagged bool) {
	if untagged {
		q.sq.sendMSN++
	}
	q.sq.next++
	q.sending = noMessage
	q.Counters.MessagesOut++
	q.drainLocals()
}

// freezeRequest freezes an Atomic Request or the next Read Request of a Read, and records that its response is
// outstanding.
func (q *QP) freezeRequest(w *sendWQE, seq uint64) (ulpdu.Ref, int) {
	s, off := &q.sq, w.sent
	r, i := w.readRequest(off)
	e := outboundRead{seq: seq, size: r.Size, stag: r.SinkSTag, to: r.SinkTO,
		last: off+r.Size == w.total}
	if w.total > 0 {
		e.mem, e.mr = w.mem.pieces[i], w.mem.regions[i]
	}
	n := readRequestULPDU
	if w.op != WRRead {
		n = atomicRequestULPDU
		q.reqID++
		w.atomic.ID = q.reqID
		e.atomic, e.reqID, e.msn = true, q.reqID, s.atomicMSN
		s.atomicMSN++
	}
	q.out.push(e)
	if off == 0 {
		w.msn = s.readMSN
	}
	w.sent += r.Size
	s.readMSN++
	if q.sending = noMessage; e.last { // responses may be sent before the next request of w
		q.finishSend(false)
	}
	return makeRef(refSend, seq, off, e.last), n
}

// freezeRTR freezes the message that opens the stream (RFC 6581, 4.4).
func (q *QP) freezeRTR() (ulpdu.Ref, int) {
	kind := q.rtrToSend
	q.rtrToSend = RTRNone
	n := ddp.TaggedLen
	switch kind {
	case RTRSend:
		n = ddp.UntaggedLen
		q.sq.sendMSN++
	case RTRWrite:
		q.progress.sent++ // the peer counts it, too
	case RTRRead:
		n = readRequestULPDU
		q.sq.readMSN++
		q.out.push(outboundRead{rtr: true, stag: rtrSTag})
	}
	q.drainLocals()
	return makeRef(refRTR, uint64(kind), 0, true), n
}

// rtrSTag is the STag of RTR messages, which refer to no buffer. Some adapters fail on 0.
const rtrSTag ddp.STag = 1

func (q *QP) freezeTerminate() (ulpdu.Ref, int) {
	t := &q.term
	t.toSend, t.sent = false, true
	t.n = len(AppendTerminateULPDU(t.wire[:0], &t.own, q.params.Version))
	q.Counters.TerminatesOut++
	return makeRef(refTerminate, 0, 0, true), t.n
}

// ReleaseULPDU reports that TCP's peer has acknowledged all of a ULPDU. It is called once for each, in order. The last
// one of a Send or Write completes it, unless a Report must cover it too.
func (q *QP) ReleaseULPDU(ref ulpdu.Ref) {
	kind, seq, last := splitRef(ref)
	if !last {
		return
	}
	switch kind {
	case refSend:
		if q.sq.has(seq) {
			q.sq.at(seq).acked = true
			q.sq.releaseAcked()
			q.completeFinished()
		}
	case refResponse:
		if seq == q.in.acked && seq != q.in.next {
			q.in.at(seq).release()
			q.in.acked++
		}
	}
}
