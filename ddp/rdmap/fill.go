package rdmap

import (
	"encoding/binary"

	"xwarp/ddp"
	"xwarp/mpa/ulpdu"
)

// ReadULPDU writes the header of a frozen ULPDU to dst, which has the ULPDU's length, and returns the registered memory
// of the rest. If that is not one piece, the rest is written behind the header, and head is len(dst). Each call gives
// the same bytes unless the consumer changes its memory. Memory that no longer belongs to the queue pair is sent as
// zero bytes.
func (q *QP) ReadULPDU(ref ulpdu.Ref, dst []byte) (head int, body []byte) {
	kind, seq, last := splitRef(ref)
	var src [][]byte // the payload of the whole message
	switch kind {
	case refSend:
		if q.sq.has(seq) {
			head, src = q.sendHeader(q.sq.at(seq), ref.Off, last, dst)
		}
	case refResponse:
		if seq-q.in.acked < q.in.tail-q.in.acked {
			head, src = q.responseHeader(q.in.at(seq), ref.Off, last, dst)
		}
	case refTerminate:
		head = copy(dst, q.term.wire[:q.term.n])
	case refRTR:
		head = q.rtrHeader(RTRKind(seq), dst)
	case refReport:
		head = q.putReport(seq, dst)
	}
	n := len(dst) - head
	if n == 0 {
		return head, nil
	}
	if body = pieceAt(src, uint64(ref.Off)); len(body) >= n {
		return head, body
	}
	if k := ddp.Gather(dst[head:], src, uint64(ref.Off)); k < n {
		clear(dst[head+k:])
		q.Counters.ReadsZeroed++
	}
	return len(dst), nil
}

// LendULPDU is ReadULPDU for a Send or Write from one piece of memory, which the consumer does not change until the
// completion. body is nil after a flush, because the memory belongs to the consumer again. It is nil for a Read
// Response, whose memory may change at any time: its owner does not know about the Read.
func (q *QP) LendULPDU(ref ulpdu.Ref, dst []byte) (head int, body []byte) {
	kind, seq, _ := splitRef(ref)
	s := &q.sq
	if kind != refSend || seq-s.head >= s.tail-s.head || len(s.at(seq).mem.pieces) != 1 {
		return 0, nil
	}
	return q.ReadULPDU(ref, dst)
}

// pieceAt returns the bytes from offset at of the pieces to the end of that piece. It returns nil if the pieces are
// shorter.
func pieceAt(pieces [][]byte, at uint64) []byte {
	for _, b := range pieces {
		if at < uint64(len(b)) {
			return b[at:]
		}
		at -= uint64(len(b))
	}
	return nil
}

// sendHeader writes the header of a ULPDU of the send queue to b, with payload that is not in registered memory. It
// returns the length written, and the memory of the whole message's payload.
func (q *QP) sendHeader(w *sendWQE, off uint32, last bool, b []byte) (head int, src [][]byte) {
	v := q.params.Version
	src = w.mem.pieces
	if w.useInline {
		src = w.inline[:]
	}
	asks := uint8(0)
	if last && w.asks {
		asks = controlAsk
	}
	if w.op == WRWrite {
		h := ddp.Tagged{Control: ddp.MakeControl(true, last, v), ULP: control(OpWrite, v) | asks,
			STag: w.remote, TO: w.to + ddp.TO(off)}
		h.Put(b)
		return ddp.TaggedLen, src
	}
	h := ddp.Untagged{Control: ddp.MakeControl(false, last, v),
		ULP: control(sendOpcodes[w.op], v) | asks, MSN: w.msn, MO: ddp.MO(off)}
	b = b[:ddp.UntaggedLen]
	switch w.op {
	case WRSendInv, WRSendSEInv:
		h.ULPWord = uint32(w.inv)
	case WRSendImm, WRSendImmSE:
		h.ULPWord = binary.BigEndian.Uint32(w.imm[:])
	case WRImm, WRImmSE:
		b = append(b, w.imm[:]...)
	case WRRead:
		r, i := w.readRequest(off)
		h.Control, h.QN, h.MSN, h.MO = ddp.MakeControl(false, true, v), QNRead, w.msn+ddp.MSN(i), 0
		b = AppendReadRequest(b, r)
	case WRFetchAdd, WRCmpSwap:
		h.QN = QNRead
		b = AppendAtomicRequest(b, w.atomic)
	}
	h.Put(b)
	return len(b), src
}

var sendOpcodes = [wrOps]Opcode{
	WRSend: OpSend, WRSendSE: OpSendSE, WRSendInv: OpSendInv, WRSendSEInv: OpSendSEInv,
	WRWrite: OpWrite,
	WRRead:  OpReadRequest, WRImm: OpImm, WRImmSE: OpImmSE, WRFetchAdd: OpAtomicReq,
	WRCmpSwap: OpAtomicReq, WRSendImm: OpSendImm, WRSendImmSE: OpSendImmSE,
}

// responseHeader is sendHeader for a ULPDU of a response.
func (q *QP) responseHeader(r *inboundRequest, off uint32, last bool, b []byte) (head int,
	src [][]byte) {
	v := q.params.Version
	if r.atomic {
		h := ddp.Untagged{Control: ddp.MakeControl(false, true, v), ULP: control(OpAtomicResp, v),
			QN: QNAtomic, MSN: r.msn}
		h.Put(b)
		return len(AppendAtomicResponse(b[:ddp.UntaggedLen], AtomicResponse{r.op.ID, r.value})), nil
	}
	src = r.mem[:]
	if r.mr != nil && !r.mr.Valid() && !r.mr.Lost() {
		// The STag was revoked after this segment was frozen. A peer that has the bytes drops the retransmission.
		// A peer that does not have them must not read the present content (RFC 5042). Nor may it complete its
		// Read with zeros, unless it invalidated the STag itself.
		src = nil
		if r.mr.Revoked() {
			last = false
			q.failRevokedRead(r, off)
		}
	}
	h := ddp.Tagged{Control: ddp.MakeControl(true, last, v), ULP: control(OpReadResponse, v),
		STag: r.read.SinkSTag, TO: r.read.SinkTO + ddp.TO(off)}
	h.Put(b)
	return ddp.TaggedLen, src
}

func (q *QP) rtrHeader(kind RTRKind, b []byte) int {
	v := q.params.Version
	switch kind {
	case RTRWrite:
		h := ddp.Tagged{Control: ddp.MakeControl(true, true, v), ULP: control(OpWrite, v),
			STag: rtrSTag}
		h.Put(b)
		return ddp.TaggedLen
	case RTRRead:
		h := ddp.Untagged{Control: ddp.MakeControl(false, true, v), ULP: control(OpReadRequest, v),
			QN: QNRead, MSN: 1}
		h.Put(b)
		return len(AppendReadRequest(b[:ddp.UntaggedLen], ReadRequest{SinkSTag: rtrSTag,
			SrcSTag: rtrSTag}))
	}
	h := ddp.Untagged{Control: ddp.MakeControl(false, true, v), ULP: control(OpSend, v), MSN: 1}
	h.Put(b)
	return ddp.UntaggedLen
}
