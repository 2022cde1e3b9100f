package rdmap

import (
	"xwarp/ddp"
	"xwarp/mpa/ulp"
)

// ReadULPDU writes the octets [off, off+len(dst)) of a frozen ULPDU to dst, each time the same
// ones unless the consumer changes its memory. What no longer belongs to the queue pair is
// written as zero octets.
func (q *QP) ReadULPDU(ref ulp.Ref, off int, dst []byte) {
	kind, seq, last := splitRef(ref)
	blank := q.blank && (kind == refSend || kind == refResponse)
	var b [atomicRequestULPDU]byte
	h, src := q.header(kind, seq, ref.Off, last && !blank, b[:])
	if blank {
		src = payload{}
	}
	if off < len(h) {
		n := copy(dst, h[off:])
		dst, off = dst[n:], len(h)
	}
	if len(dst) == 0 {
		return
	}
	at := uint64(ref.Off) + uint64(off-len(h))
	n := 0
	switch {
	case src.one != nil:
		if at <= uint64(len(src.one)) {
			n = copy(dst, src.one[at:])
		}
	case src.many != nil:
		n = ddp.Gather(dst, src.many, at)
	}
	if n < len(dst) {
		clear(dst[n:])
		q.Counters.ReadsZeroed++
	}
}

// HeadULPDU is mpa.Direct: it writes the header of a frozen ULPDU of n octets to head, and returns the registered memory that the
// rest is in when that is one piece.
func (q *QP) HeadULPDU(ref ulp.Ref, n int, head []byte) (h int, body []byte, ok bool) {
	if q.blank {
		return 0, nil, false
	}
	kind, seq, last := splitRef(ref)
	if kind == refSend && q.sq.holds(seq) {
		if w := q.sq.at(seq); w.op == WRWrite && len(w.mem.pieces) == 1 && !w.useInline { // the most frequent one, without detours
			q.writeHeader(w, ref.Off, last, head)
			body = w.mem.pieces[0]
			body = body[min(uint64(ref.Off), uint64(len(body))):]
			return ddp.TaggedLen, body, n-ddp.TaggedLen <= len(body)
		}
	}
	if kind != refSend && kind != refResponse {
		return 0, nil, false
	}
	b, src := q.header(kind, seq, ref.Off, last, head)
	if len(b) == 0 || len(b) > n {
		return 0, nil, false
	}
	body, ok = src.from(uint64(ref.Off), n-len(b))
	return len(b), body, ok
}

// payload is where the octets behind a header come from.
type payload struct {
	one  []byte
	many [][]byte
}

// from returns the octets of the piece that holds n octets at at, from there on.
func (p *payload) from(at uint64, n int) ([]byte, bool) {
	if p.one != nil || n == 0 {
		if at+uint64(n) > uint64(len(p.one)) {
			return nil, n == 0
		}
		return p.one[at:], true
	}
	for _, b := range p.many {
		if at < uint64(len(b)) {
			return b[at:], uint64(n) <= uint64(len(b))-at
		}
		at -= uint64(len(b))
	}
	return nil, false
}

// header builds the headers of a ULPDU in b and says where its payload is; nothing when the
// queue pair does not know it any more.
func (q *QP) header(kind, seq uint64, off uint32, last bool, b []byte) ([]byte, payload) {
	switch kind {
	case refTerminate:
		return q.term.wire[:q.term.n], payload{}
	case refRTR:
		return q.rtrHeader(RTRKind(seq), b), payload{}
	case refSend:
		if q.sq.holds(seq) {
			return q.sendHeader(q.sq.at(seq), off, last, b)
		}
	case refResponse:
		if seq-q.in.acked < q.in.tail-q.in.acked {
			return q.responseHeader(q.in.at(seq), off, last, b)
		}
	}
	return nil, payload{}
}

func (q *QP) sendHeader(w *sendWQE, off uint32, last bool, b []byte) ([]byte, payload) {
	v := q.par.Version
	src := payload{many: w.mem.pieces}
	if w.useInline {
		src = payload{one: w.inline}
	} else if len(w.mem.pieces) == 1 {
		src = payload{one: w.mem.pieces[0]}
	}
	if w.op == WRWrite {
		q.writeHeader(w, off, last, b)
		return b[:ddp.TaggedLen], src
	}
	h := ddp.Untagged{Control: ddp.MakeControl(false, last, v), ULP: control(sendOpcodes[w.op], v), MSN: w.msn, MO: ddp.MO(off)}
	switch w.op {
	case WRSendInv, WRSendSEInv:
		h.ULPWord = uint32(w.inv)
	case WRImm, WRImmSE:
		src = payload{one: w.imm[:]}
	case WRRead:
		h.QN, src = QNRead, payload{}
		AppendReadRequest(b[:ddp.UntaggedLen], ReadRequest{w.sink.STag, w.sink.TO, w.total, w.remote, w.to})
		h.Put(b)
		return b[:readRequestULPDU], src
	case WRFetchAdd, WRCmpSwap:
		h.QN, src = QNRead, payload{}
		AppendAtomicRequest(b[:ddp.UntaggedLen], w.atomic)
		h.Put(b)
		return b[:atomicRequestULPDU], src
	}
	h.Put(b)
	return b[:ddp.UntaggedLen], src
}

// writeHeader writes the header of a segment of a Write to b.
func (q *QP) writeHeader(w *sendWQE, off uint32, last bool, b []byte) {
	v := q.par.Version
	h := ddp.Tagged{Control: ddp.MakeControl(true, last, v), ULP: control(OpWrite, v), STag: w.remote, TO: w.to + ddp.TO(off)}
	h.Put(b)
}

var sendOpcodes = [wrOps]Opcode{
	WRSend: OpSend, WRSendSE: OpSendSE, WRSendInv: OpSendInv, WRSendSEInv: OpSendSEInv, WRWrite: OpWrite,
	WRRead: OpReadRequest, WRImm: OpImm, WRImmSE: OpImmSE, WRFetchAdd: OpAtomicReq, WRCmpSwap: OpAtomicReq,
}

func (q *QP) responseHeader(r *request, off uint32, last bool, b []byte) ([]byte, payload) {
	v := q.par.Version
	if r.atomic {
		h := ddp.Untagged{Control: ddp.MakeControl(false, true, v), ULP: control(OpAtomicResp, v), QN: QNAtomic, MSN: r.msn}
		h.Put(b)
		AppendAtomicResponse(b[:ddp.UntaggedLen], AtomicResponse{r.op.ID, r.value})
		return b[:atomicRespULPDU], payload{}
	}
	src := payload{one: r.mem}
	if r.mr != nil && !r.mr.Valid() && !r.mr.Lost() {
		// The STag was taken back after this segment was frozen. A peer that has the octets drops the repetition; one that has
		// not must not see what is there now (RFC 5042), nor take zeros for the end of its Read when they are not its own doing.
		src = payload{}
		if r.mr.Revoked() {
			last = false
			q.revoked(r, off)
		}
	}
	h := ddp.Tagged{Control: ddp.MakeControl(true, last, v), ULP: control(OpReadResponse, v), STag: r.read.SinkSTag, TO: r.read.SinkTO + ddp.TO(off)}
	h.Put(b)
	return b[:ddp.TaggedLen], src
}

func (q *QP) rtrHeader(kind RTRKind, b []byte) []byte {
	v := q.par.Version
	switch kind {
	case RTRWrite:
		h := ddp.Tagged{Control: ddp.MakeControl(true, true, v), ULP: control(OpWrite, v), STag: rtrSTag}
		h.Put(b)
		return b[:ddp.TaggedLen]
	case RTRRead:
		h := ddp.Untagged{Control: ddp.MakeControl(false, true, v), ULP: control(OpReadRequest, v), QN: QNRead, MSN: 1}
		h.Put(b)
		AppendReadRequest(b[:ddp.UntaggedLen], ReadRequest{SinkSTag: rtrSTag, SrcSTag: rtrSTag})
		return b[:readRequestULPDU]
	}
	h := ddp.Untagged{Control: ddp.MakeControl(false, true, v), ULP: control(OpSend, v), MSN: 1}
	h.Put(b)
	return b[:ddp.UntaggedLen]
}
