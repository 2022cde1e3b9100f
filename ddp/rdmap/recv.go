package rdmap

import (
	"xwarp/ddp"
	"xwarp/mpa/ulpdu"
)

// errOutOfOrder is returned by Place for a segment that cannot be placed out of order. It is not an error yet: MPA
// holds the segment and calls Place again in order.
var errOutOfOrder = &ulpdu.Error{Layer: ulpdu.DDP,
	Detail: "segment cannot be placed out of order"}

// Place copies the payload of a received ULPDU to its destination. It places segments in any order. Out of order, an
// error means that nothing was placed. In order, an error other than ulpdu.NotReady ends the stream; the caller passes
// it to Fail.
//
// In order, a fault of registered memory is a panic for RecoverMemoryFault; MPA has changed nothing then. Out of order
// it is an error like others, and Place is called again in order.
func (q *QP) Place(v *ulpdu.View, inOrder bool) *ulpdu.Error {
	if q.ignoresSegments() {
		q.Counters.DroppedAfterError++
		return nil // RFC 5041, 7.1: silently dropped
	}
	if q.memoryErr != nil {
		return q.memoryErr
	}
	var scratch [ddp.UntaggedLen]byte
	var hdr []byte
	if b := v.Pieces(); len(b) > 0 && len(b[0]) >= ddp.UntaggedLen { // without a call: 4 ns of 205 less
		hdr = b[0][:ddp.UntaggedLen]
	} else {
		hdr = v.Header(ddp.UntaggedLen, scratch[:])
	}
	q.sawFPDU = true
	if !inOrder {
		return q.placeOutOfOrder(v, hdr)
	}
	switch c := q.place(v, hdr); {
	case c == ddp.CauseNone:
		return nil
	case c == ddp.CauseNoBuffer && q.mayWait(hdr):
		q.noteStarved()
		q.cfg.Starved()
		return ulpdu.NotReady
	default:
		return q.reject(c, hdr, v.Len())
	}
}

// mayWait reports whether a segment without a posted receive waits for one: it belongs to the next message, and
// Config.Starved permits it.
func (q *QP) mayWait(hdr []byte) bool {
	if q.cfg.Starved == nil || q.waitsNoMore || ddp.Control(hdr[0]).Tagged() {
		return false
	}
	var h ddp.Untagged
	h.Decode(hdr)
	return h.QN == QNSend && h.MSN == q.rq.next
}

// WaitingMessage returns the number of the next message. bounded means that the message waits for a receive, and that
// this side limits the wait. With private messages the peer decides how long it waits.
func (q *QP) WaitingMessage() (msn ddp.MSN, bounded bool) {
	return q.rq.next, q.progress.waits && !q.params.Private
}

// StopWaiting makes the lack of a receive an error again, as without Config.Starved, once MPA offers the message that
// waits.
func (q *QP) StopWaiting() { q.waitsNoMore = true }

// placeOutOfOrder is place for a segment before its turn.
func (q *QP) placeOutOfOrder(v *ulpdu.View, hdr []byte) (err *ulpdu.Error) {
	defer q.recoverFault(&err)
	if q.place(v, hdr) != ddp.CauseNone {
		return errOutOfOrder
	}
	q.Counters.PlacedAhead++
	return nil
}

// ignoresSegments reports whether received segments are dropped silently (RFC 5041, 7.1).
func (q *QP) ignoresSegments() bool {
	return q.state < RTR || q.state > Closing
}

// place checks the header of a segment (RFC 5041, 7.1; RFC 5040, 7.2), and copies its payload to its destination.
func (q *QP) place(v *ulpdu.View, hdr []byte) ddp.Cause {
	if len(hdr) < 2 || len(hdr) < ddp.Control(hdr[0]).HeaderLen() {
		return ddp.CauseCatastrophic
	}
	if !ddp.Control(hdr[0]).Tagged() {
		return q.placeUntagged(v, hdr)
	}
	var h ddp.Tagged
	h.Decode(hdr)
	if h.Control.Version() != q.params.Version {
		return ddp.CauseTaggedVersion
	}
	if versionOf(h.ULP) != q.params.Version {
		return CauseVersion
	}
	c := CauseOpcode
	switch opcodeOf(h.ULP) {
	case OpWrite:
		if q.denied&ddp.RemoteWrite != 0 && v.Len() > ddp.TaggedLen {
			return ddp.TaggedCause(ddp.FaultAccess)
		}
		c = q.cfg.Table.PlaceTagged(&q.lookup, q.cfg.PD, q.cfg.Stream, h, v)
	case OpReadResponse:
		c = q.placeResponse(&h, v)
	}
	return q.countPlaced(c, v.Len()-ddp.TaggedLen)
}

// countPlaced counts n bytes of payload if c is CauseNone: they were placed. It returns c.
func (q *QP) countPlaced(c ddp.Cause, n int) ddp.Cause {
	if c == ddp.CauseNone {
		q.Counters.PayloadIn += uint64(n)
	}
	return c
}

func (q *QP) placeUntagged(v *ulpdu.View, hdr []byte) ddp.Cause {
	var h ddp.Untagged
	h.Decode(hdr)
	if h.Control.Version() != q.params.Version {
		return ddp.CauseUntaggedVersion
	}
	lastQN, lastOp := QNAtomic, OpAtomicResp
	if q.params.Private {
		lastQN, lastOp = QNReport, OpReport
	}
	if h.QN > lastQN || (h.QN == QNAtomic && q.params.Version != ddp.IETF) {
		return ddp.CauseQN
	}
	if versionOf(h.ULP) != q.params.Version {
		return CauseVersion
	}
	op := opcodeOf(h.ULP)
	if op > lastOp || queueOf[op] != int8(h.QN) ||
		(op >= OpImm && q.params.Version != ddp.IETF) {
		return CauseOpcode
	}
	switch h.QN {
	case QNSend:
		return q.countPlaced(q.placeSend(&h, v), v.Len()-ddp.UntaggedLen)
	case QNRead:
		return q.placeRequest(&h, hdr, v)
	case QNTerminate:
		return q.placeTerminate(&h, v)
	case QNReport:
		return q.placeReport(&h, v.Len()-ddp.UntaggedLen)
	default:
		return q.placeAtomicResponse(&h, v)
	}
}

// queueOf is the queue of each opcode, -1 for tagged messages.
var queueOf = [...]int8{
	OpWrite: -1, OpReadRequest: 1, OpReadResponse: -1, OpSend: 0, OpSendInv: 0, OpSendSE: 0,
	OpSendSEInv: 0,
	OpTerminate: 2, OpImm: 0, OpImmSE: 0, OpAtomicReq: 1, OpAtomicResp: 3,
	OpSendImm: 0, OpSendImmSE: 0, OpReport: 4,
}

// placeSend places a segment of queue 0 into its receive.
func (q *QP) placeSend(h *ddp.Untagged, v *ulpdu.View) ddp.Cause {
	n := v.Len() - ddp.UntaggedLen
	op := opcodeOf(h.ULP)
	if q.msg.rtrSend && h.MSN == 1 {
		if op != OpSend {
			return CauseOpcode
		}
		return ddp.CheckUntagged(h.MO, n, 0)
	}
	if q.progress.waits && q.rq.srq != nil && h.MSN != q.rq.next {
		return ddp.CauseNoBuffer // it would take the receive that the message before it waits for
	}
	w, c := q.rq.receiveFor(h.MSN)
	if c != ddp.CauseNone {
		return c
	}
	if q.progress.waits && h.MSN == q.rq.next {
		q.noteFed()
	}
	if op == OpImm || op == OpImmSE {
		if h.MO != 0 { // an error of DDP: the segment is invalid (RFC 5041, 8.2)
			return ddp.CauseMO
		}
		if n != ImmLen || !h.Control.Last() {
			return CauseStreamFatal
		}
		v.CopyTo(w.imm[:], ddp.UntaggedLen)
		return ddp.CauseNone
	}
	if c := ddp.CheckUntagged(h.MO, n, w.mem.total); c != ddp.CauseNone {
		return c
	}
	if uint64(h.MO)+uint64(n) > w.mem.usable {
		return causeSinkDenied
	}
	ddp.Scatter(w.mem.pieces, uint64(h.MO), v, ddp.UntaggedLen)
	return ddp.CauseNone
}

// placeRequest stores a Read or Atomic Request until it is delivered.
func (q *QP) placeRequest(h *ddp.Untagged, hdr []byte, v *ulpdu.View) ddp.Cause {
	i, c := ddp.BufferIndex(h.MSN, q.in.nextMSN(), q.in.freeSlots(q.params.IRD))
	if c != ddp.CauseNone {
		return c
	}
	want := ReadRequestLen
	if opcodeOf(h.ULP) == OpAtomicReq {
		want = AtomicRequestLen
	}
	if c := ddp.CheckUntagged(h.MO, v.Len()-ddp.UntaggedLen, uint64(want)); c != ddp.CauseNone {
		return c
	}
	if h.MO != 0 {
		return ddp.CauseMO
	}
	if v.Len()-ddp.UntaggedLen != want || !h.Control.Last() {
		return CauseStreamFatal
	}
	r := q.in.slotFor(q.in.tail + uint64(i))
	copy(r.head[:], hdr)
	r.placed = v.CopyTo(r.raw[:], ddp.UntaggedLen)
	return ddp.CauseNone
}

func (q *QP) placeTerminate(h *ddp.Untagged, v *ulpdu.View) ddp.Cause {
	n := v.Len() - ddp.UntaggedLen
	if h.MSN != 1 || q.term.gotPeer {
		return ddp.CauseMSNRange
	}
	if c := ddp.CheckUntagged(h.MO, n, termPayload); c != ddp.CauseNone {
		return c
	}
	if h.MO != 0 {
		return ddp.CauseMO
	}
	if n < 4 || !h.Control.Last() {
		return CauseStreamFatal
	}
	q.term.rawLen = v.CopyTo(q.term.raw[:], ddp.UntaggedLen)
	return ddp.CauseNone
}

// placeAtomicResponse stores a response until it is delivered.
func (q *QP) placeAtomicResponse(h *ddp.Untagged, v *ulpdu.View) ddp.Cause {
	next, waiting := q.sq.atomicMSN, 0
	var e *outboundRead
	for i := range q.out.len() {
		if o := q.out.at(i); o.atomic {
			if waiting == 0 {
				next = o.msn
			}
			waiting++
			if o.msn == h.MSN {
				e = o
			}
		}
	}
	if _, c := ddp.BufferIndex(h.MSN, next, waiting); c != ddp.CauseNone {
		return c
	}
	n := v.Len() - ddp.UntaggedLen
	if c := ddp.CheckUntagged(h.MO, n, AtomicRespLen); c != ddp.CauseNone {
		return c
	}
	if h.MO != 0 {
		return ddp.CauseMO
	}
	if n != AtomicRespLen || !h.Control.Last() {
		return CauseStreamFatal
	}
	v.CopyTo(e.resp[:], ddp.UntaggedLen)
	return ddp.CauseNone
}

// placeResponse places a segment of a Read Response. It must be for the sink of an outstanding Read of this stream.
func (q *QP) placeResponse(h *ddp.Tagged, v *ulpdu.View) ddp.Cause {
	n := v.Len() - ddp.TaggedLen
	if n == 0 {
		return ddp.CauseNone
	}
	c := CauseOpcode // no Read is outstanding
	for i := range q.out.len() {
		e := q.out.at(i)
		if e.atomic {
			continue
		}
		off, f := e.offset(h, n)
		if f == ddp.OK {
			v.CopyTo(e.mem[off:off+uint64(n)], ddp.TaggedLen)
			return ddp.CauseNone
		}
		if c == CauseOpcode || c == ddp.CauseSTag {
			c = ddp.TaggedCause(f)
		}
	}
	return c
}

// offset returns where in the sink of a Read the n bytes of segment h belong.
func (e *outboundRead) offset(h *ddp.Tagged, n int) (uint64, ddp.Fault) {
	if h.STag != e.stag || e.mr == nil || !e.mr.Valid() {
		return 0, ddp.FaultSTag
	}
	if uint64(h.TO)+uint64(n) < uint64(h.TO) {
		return 0, ddp.FaultWrap
	}
	off := uint64(h.TO) - uint64(e.to)
	if h.TO < e.to || off > uint64(e.size) || uint64(n) > uint64(e.size)-off {
		return 0, ddp.FaultBounds
	}
	return off, ddp.OK
}

// reject returns the error for the segment that ends the stream, and marks its receive or Read.
func (q *QP) reject(c ddp.Cause, hdr []byte, n int) *ulpdu.Error {
	text := "cut off in its header"
	if h, _, err := ddp.ParseTagged(hdr); err == nil {
		text = opcodeOf(h.ULP).String() + ", " + h.String()
	} else if h, _, err := ddp.ParseUntagged(hdr); err == nil {
		text = opcodeOf(h.ULP).String() + ", " + h.String()
	}
	name, _ := Describe(c)
	e := c.Errorf("%s: ULPDU of %d bytes, %s", name, n, text)
	q.markFailedWR(c, hdr)
	q.captureSegment(e, hdr, n, nil)
	return e
}

// markFailedWR marks the receive whose message caused the error c, or the Read that got a wrong response.
func (q *QP) markFailedWR(c ddp.Cause, hdr []byte) {
	if len(hdr) == 0 || len(hdr) < ddp.Control(hdr[0]).HeaderLen() {
		return
	}
	if ddp.Control(hdr[0]).Tagged() {
		if opcodeOf(hdr[1]) == OpReadResponse && q.out.len() > 0 && !q.out.first().rtr {
			q.markSend(q.out.first().seq, BadRespErr)
		}
		return
	}
	var h ddp.Untagged
	h.Decode(hdr)
	st := Success
	switch c {
	case ddp.CauseTooLong, ddp.CauseMO:
		st = LocLenErr
	case CauseStreamFatal, CauseOpcode, CauseProtInvalidate, CauseOpInvalidate:
		st = RemInvReqErr
	case causeSinkDenied:
		st = LocProtErr
	}
	if h.QN != QNSend || st == Success {
		return
	}
	if w, c := q.rq.receiveFor(h.MSN); c == ddp.CauseNone && w.status == Success {
		w.status = st
	}
}

func (q *QP) markSend(seq uint64, st Status) {
	if q.sq.has(seq) {
		if w := q.sq.at(seq); w.status == Success {
			w.status = st
		}
	}
}

// captureSegment keeps the headers that a Terminate for e includes. r is the request at fault, or nil.
func (q *QP) captureSegment(e *ulpdu.Error, hdr []byte, n int, r *inboundRequest) {
	t := &q.term
	t.err, t.segLen, t.hasRead = e, n, false
	t.headLen = copy(t.faultHead[:], hdr)
	if r != nil && !r.atomic {
		t.read, t.hasRead = r.remaining(), true
	}
}

// makeOwn makes the Terminate for e, once.
func (t *terminator) makeOwn(e *ulpdu.Error) {
	if t.made {
		return
	}
	t.made = true
	c := ddp.MakeCause(e.Layer, e.Type, e.Code)
	if e != t.err {
		t.own = makeTerminate(c, nil, 0, nil)
		return
	}
	var r *ReadRequest
	if t.hasRead {
		r = &t.read
	}
	t.own = makeTerminate(c, t.faultHead[:t.headLen], t.segLen, r)
}
