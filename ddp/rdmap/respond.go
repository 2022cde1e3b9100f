package rdmap

import (
	"encoding/binary"
	"unsafe"

	"xwarp/ddp"
	"xwarp/mpa/ulpdu"
)

// responseReady reports whether the next response may begin. An atomic waits while TCP may have to retransmit a Read
// Response with the same word. That word was read before the atomic (RFC 7306, 7), and a Read Response is made from
// memory each time.
func (q *QP) responseReady() bool {
	if q.in.waiting() == 0 {
		return false
	}
	r := q.in.at(q.in.next)
	if !r.atomic || q.in.acked == q.in.next {
		return true
	}
	word, c := q.atomicTarget(&r.op)
	if c != ddp.CauseNone {
		return true // executeAtomic reports it to the peer
	}
	for i := q.in.acked; i != q.in.next; i++ {
		if m := q.in.at(i).mem[0]; len(m) > 0 {
			off := uintptr(unsafe.Pointer(word)) + 7 - uintptr(unsafe.Pointer(unsafe.SliceData(m)))
			if off < uintptr(len(m))+7 {
				return false
			}
		}
	}
	return true
}

// freezeResponse freezes the next segment of the response that is due.
func (q *QP) freezeResponse(limit int) (ulpdu.Ref, int) {
	i := q.in.next
	r := q.in.at(i)
	if r.atomic {
		if !q.executeAtomic(r) {
			return ulpdu.Ref{}, 0
		}
		r.msn = q.in.atomicMSN
		q.in.atomicMSN++
		q.finishResponse()
		return makeRef(refResponse, i, 0, true), atomicRespULPDU
	}
	if f := q.checkSource(r); f != ddp.OK {
		q.failResponse(r, protectionCause(f), "source of a Read is gone")
		return ulpdu.Ref{}, 0
	}
	off := r.sent
	n := min(uint64(limit-ddp.TaggedLen), uint64(r.read.Size-off))
	r.sent += uint32(n)
	q.Counters.PayloadOut += n
	last := r.sent == r.read.Size
	if last {
		q.finishResponse()
	}
	return makeRef(refResponse, i, off, last), ddp.TaggedLen + int(n)
}

func (q *QP) finishResponse() {
	q.in.next++
	q.sending = noMessage
	q.Counters.ResponsesOut++
}

// checkSource checks, before each segment, that the memory of a Read can still be read.
func (q *QP) checkSource(r *inboundRequest) ddp.Fault {
	if r.read.Size == 0 {
		return ddp.OK // not validated (RFC 5040, 5.2.1)
	}
	if r.mr == nil {
		m, b, f := q.findRemote(r.read.SrcSTag, r.read.SrcTO, int(r.read.Size), ddp.RemoteRead)
		if f != ddp.OK {
			return f
		}
		m.Hold()
		r.mr, r.mem[0] = m, b
	}
	if !r.mr.Valid() {
		return ddp.FaultSTag
	}
	return ddp.OK
}

// executeAtomic executes an atomic on its word. It reports whether it could.
func (q *QP) executeAtomic(r *inboundRequest) bool {
	word, c := q.atomicTarget(&r.op)
	if c != ddp.CauseNone {
		q.failResponse(r, c, "target of an atomic is gone")
		return false
	}
	err := q.applyAtomic(r, word)
	q.Fail(err)
	return err == nil
}

// applyAtomic applies an atomic to word and records the original value.
func (q *QP) applyAtomic(r *inboundRequest, word *uint64) (err *ulpdu.Error) {
	defer q.recoverFault(&err)
	for {
		old := *word
		want, _ := r.op.Apply(old)
		if q.cfg.CompareAndSwap == nil {
			*word = want
		} else if !q.cfg.CompareAndSwap(word, old, want) {
			continue
		}
		r.value = old
		return nil
	}
}

// atomicTarget checks an atomic and returns its word.
func (q *QP) atomicTarget(op *AtomicRequest) (*uint64, ddp.Cause) {
	if _, ok := op.Apply(0); !ok {
		return nil, CauseOpcode
	}
	_, b, f := q.findRemote(op.STag, op.TO, 8, ddp.RemoteAtomic)
	if f != ddp.OK {
		return nil, protectionCause(f)
	}
	p := unsafe.Pointer(unsafe.SliceData(b))
	if uintptr(p)%8 != 0 {
		return nil, CauseStreamFatal // RFC 7306, 8.2
	}
	return (*uint64)(p), ddp.CauseNone
}

// failResponse ends the stream because a response cannot be made any more. The Terminate shows the progress of a Read
// (RFC 5040, 4.8).
func (q *QP) failResponse(r *inboundRequest, c ddp.Cause, why string) {
	e := c.Errorf("%s: %s", why, r.describe())
	q.captureSegment(e, r.head[:], ddp.UntaggedLen+r.placed, r)
	q.Fail(e)
}

// failRevokedRead ends the stream after bytes were sent as zero, because the consumer revoked the source of a Read
// under way.
func (q *QP) failRevokedRead(r *inboundRequest, off uint32) {
	if q.state != RTS || q.term.made {
		return
	}
	e := CauseProtSTag.Errorf("source of a Read was revoked: %s", r.describe())
	at := *r
	at.sent = off
	q.captureSegment(e, r.head[:], ddp.UntaggedLen+r.placed, &at)
	q.Fail(e)
}

// describe returns a description of the request for an engineer.
func (r *inboundRequest) describe() string {
	if r.atomic {
		return r.op.String()
	}
	at := r.remaining()
	return at.String()
}

// remaining returns the Read Request for the bytes that are not sent yet.
func (r *inboundRequest) remaining() ReadRequest {
	p := r.read
	p.SinkTO += ddp.TO(r.sent)
	p.SrcTO += ddp.TO(r.sent)
	p.Size -= r.sent
	return p
}

// putNative writes v to b as a word in the host's byte order.
func (q *QP) putNative(b []byte, v uint64) (err *ulpdu.Error) {
	defer q.recoverFault(&err)
	binary.NativeEndian.PutUint64(b, v)
	return nil
}
