package rdmap

import (
	"xwarp/ddp"
	"xwarp/mpa/ulpdu"
)

// memoryFault is the value of the panic for an access to memory that cannot be accessed, after
// runtime/debug.SetPanicOnFault.
type memoryFault interface {
	error
	Addr() uintptr
}

// recoverFault, deferred around an access to registered memory, turns a fault there into the error of this stream. It
// panics again with any other value.
func (q *QP) recoverFault(err **ulpdu.Error) {
	if v := recover(); v != nil {
		if *err = q.RecoverMemoryFault(v); *err == nil {
			panic(v)
		}
	}
}

// RecoverMemoryFault handles the recovered value v of a panic in an access to registered memory. It revokes the regions
// with that memory and returns the error that ends the stream, for Fail. It returns nil if the panic has another
// reason; the caller then panics again.
func (q *QP) RecoverMemoryFault(v any) *ulpdu.Error {
	f, ok := v.(memoryFault)
	if !ok {
		return nil
	}
	m := q.cfg.Table.RevokeMemory(f.Addr())
	if own := q.markMemory(f.Addr()); own != nil {
		m = own
	}
	if m == nil {
		return nil
	}
	off, _ := m.Offset(f.Addr())
	if q.memoryErr == nil {
		q.memoryErr = CauseCatastrophic.Errorf("byte %d of the memory region with %v cannot be "+
			"accessed: its file was truncated, or the disk failed", off, m)
	}
	return q.memoryErr
}

// markMemory marks the work requests that refer to the address, and returns one of their regions. It also finds regions
// whose STag is not valid any more. It returns nil if no work request refers to the address.
func (q *QP) markMemory(addr uintptr) (found *ddp.MR) {
	for i := q.sq.oldestKept(); i != q.sq.tail; i++ {
		w := q.sq.at(i)
		m := w.mem.regionOf(addr)
		if m == nil {
			continue
		}
		if found = m; w.status == Success {
			w.status = LocProtErr
		}
	}
	for i := range q.out.len() {
		e := q.out.at(i)
		if e.mr == nil {
			continue
		}
		if _, ok := e.mr.Offset(addr); ok {
			found = e.mr
			q.markSend(e.seq, LocProtErr)
		}
	}
	for i := q.in.acked; i != q.in.tail; i++ {
		if m := q.in.at(i).mr; m != nil {
			if _, ok := m.Offset(addr); ok {
				found = m
			}
		}
	}
	if m := q.rq.markMemory(addr); m != nil {
		found = m
	}
	return found
}

// markMemory is QP.markMemory for receives.
func (r *recvQueue) markMemory(addr uintptr) (found *ddp.MR) {
	mark := func(w *recvWQE) {
		if m := w.mem.regionOf(addr); m != nil {
			found = m
			w.status = LocProtErr
		}
	}
	for i := r.head; i != r.tail; i++ {
		mark(&r.own[i&r.mask])
	}
	for _, i := range r.taken {
		if i >= 0 {
			mark(&r.srq.wqes[i])
		}
	}
	return found
}

// regionOf returns the region of s that contains the address.
func (s *sgl) regionOf(addr uintptr) *ddp.MR {
	for i, p := range s.pieces {
		if _, ok := ddp.OffsetIn(p, addr); ok {
			return s.regions[i]
		}
	}
	return nil
}

// UnfreezeTerminate reports that the ULPDUs frozen last were never sent: a Terminate among them must still be sent.
func (q *QP) UnfreezeTerminate() {
	if t := &q.term; t.sent && q.state == Terminated {
		t.toSend, t.sent = true, false
		q.Counters.TerminatesOut--
	}
}
