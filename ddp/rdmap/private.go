package rdmap

import (
	"xwarp/ddp"
	"xwarp/mpa/ulpdu"
)

// Private messages are used on a stream only if both ends agreed to them in MPA's start-up (Config.PeerAgrees). They
// give a queue pair what InfiniBand's reliable connections have and RFC 5040 does not:
//
//   - Send with immediate data: one message, with the data in the place of the Invalidate STag.
//   - Reports: the peer reports how many messages it has delivered. A Send or Write completes when a Report covers it,
//     so its data has been placed, on any transport. Before a Terminate a Report covers the messages before the failed
//     one. A Report can also say that the next message waits for a receive ("receiver not ready").
//
// A Report costs less than a zero-length Read, which would need a request of its own and room in ORD and IRD. It is a
// header without payload, is sent only for a message that asks for it, and covers all messages before that one.
// Where the peer's program answers each message, the Report leaves in one segment with the answer: see HeldReport.
// A Report takes effect when it is placed, also out of order: a message that waits for a receive does not delay it.
//
//	Report: untagged, QN 4, MSN: number of messages delivered, modulo 2^32, MO 0
//	ULP word: bit 31: the next message waits; 30..16: serial number of the Report; 4..0, with bit 31: IBV_QP_MIN_RNR_TIMER

// controlAsk is a bit of RDMAP's control byte that RFC 5040 reserves: the last segment of a Send or Write asks for a
// Report.
const controlAsk = 0x10

// QNReport is the queue of Reports.
const QNReport ddp.QN = 4

// reportEvery is the number of bytes of signaled messages after which one asks for a Report, although others follow. A
// Report costs both ends a segment, and on the kernel's sockets a system call.
const reportEvery = 1 << 20

const (
	reportWaits       = 1 << 31
	reportSerialShift = 16
	reportSerialMask  = 1<<15 - 1
	reportTimerMask   = 1<<5 - 1
)

// progress is the state of Reports of both directions.
type progress struct {
	sent    uint32   // Sends and Writes frozen whole
	placed  uint32   // of those sent, covered by the peer's Reports
	unasked struct { // of those sent, since the last one that asks for a Report
		messages uint64
		bytes    uint64
		signaled bool // one of them is signaled
	}
	serialIn  uint16
	peerWaits bool // the peer has no receive for the next message: none begins

	delivered uint32 // Sends and Writes of the peer that were delivered
	due       bool   // a Report is to be sent
	held      bool   // the due Report waits for a message of this end, see HeldReport
	alone     bool   // since the last Report no message of this end began, and none that asks for one arrived
	follows   bool   // a message of this end followed a Report, as an answer does; ReleaseReport clears it
	waits     bool   // the peer's next message waits for a receive
	told      bool   // the last Report said that the peer's next message waits
	serialOut uint16
}

// report returns the ULP word of a Report.
func (p *progress) report(timer uint8) uint32 {
	w := uint32(p.serialOut) << reportSerialShift
	if p.waits {
		w |= reportWaits | uint32(timer&reportTimerMask)
	}
	return w
}

// asksForReport reports whether w, which is being frozen, asks for a Report. A message does not if another one follows
// at once, whose Report covers both. At least every half of the queue one asks: otherwise the queue could be full of
// messages that none covers. Signaled messages complete in batches of at most a quarter of it and reportEvery bytes.
func (q *QP) asksForReport(w *sendWQE) bool {
	u := &q.progress.unasked
	u.messages++
	u.bytes += uint64(w.total)
	u.signaled = u.signaled || w.flags&Signaled != 0
	if next := q.sq.next + 1; next != q.sq.tail {
		n := q.sq.at(next)
		near := 2*u.messages <= q.sq.depth
		if u.signaled {
			near = 4*u.messages <= q.sq.depth && u.bytes+uint64(n.total) <= reportEvery
		}
		if near && !n.wantsResponse() && !n.isLocal() && n.flags&Fence == 0 {
			return false
		}
	}
	u.messages, u.bytes, u.signaled = 0, 0, false
	return true
}

// countSent counts a message that is frozen whole.
func (q *QP) countSent(w *sendWQE) {
	q.progress.sent++
	w.number, w.asks = q.progress.sent, q.asksForReport(w)
}

// countDelivered counts a message of the peer whose last segment has the RDMAP control byte ulp.
func (q *QP) countDelivered(ulp uint8) {
	if p := &q.progress; q.params.Private {
		p.delivered++
		if ulp&controlAsk != 0 {
			p.held, p.due = p.follows && p.held == p.due, true
			p.alone = false
		}
	}
}

// HeldReport reports whether a Report waits for a message of this end, to leave in one segment with it. It does if a
// message followed an earlier Report, as an answer does. ReleaseReport ends the wait.
func (q *QP) HeldReport() bool { return q.progress.held }

// ReleaseReport lets the held Report be sent without a message. Later Reports are not held until a message follows one.
func (q *QP) ReleaseReport() { q.progress.held, q.progress.follows = false, false }

// reportReady reports whether a Report is to be sent now.
func (q *QP) reportReady() bool {
	p := &q.progress
	return p.due && (!p.held || q.sendReady() || q.responseReady())
}

// noteBegun records that a message of this end begins.
func (p *progress) noteBegun() {
	p.follows, p.alone = p.follows || p.alone, false
}

// noteStarved records that the peer's next message waits for a receive.
func (q *QP) noteStarved() {
	p := &q.progress
	if p.waits {
		return
	}
	p.waits = true
	q.Counters.ReceiverNotReady++
	p.due, p.held = p.due || q.params.Private, false
}

// noteFed records that the peer's next message has a receive.
func (q *QP) noteFed() {
	p := &q.progress
	p.waits = false
	p.due, p.held = p.due || p.told, p.held && !p.told
}

// freezeReport freezes a Report.
func (q *QP) freezeReport() (ulpdu.Ref, int) {
	p := &q.progress
	p.due, p.held, p.told, p.alone = false, false, p.waits, true
	p.serialOut = (p.serialOut + 1) & reportSerialMask
	q.Counters.ReportsOut++
	seq := uint64(p.report(q.cfg.RNRTimer))<<reportCountBits | uint64(p.delivered)&reportCountMask
	return makeRef(refReport, seq, 0, true), ddp.UntaggedLen
}

// A ulpdu.Ref has 60 bits for a Report: its ULP word, and the lower bits of its count. The upper bits of the count
// follow from progress.delivered, because far fewer than 2^28 messages are delivered between a Report and its
// retransmission.
const (
	reportCountBits = 28
	reportCountMask = 1<<reportCountBits - 1
)

// putReport writes the Report that freezeReport returned seq for.
func (q *QP) putReport(seq uint64, b []byte) int {
	d := q.progress.delivered
	count := d - (d-uint32(seq))&reportCountMask
	v := q.params.Version
	h := ddp.Untagged{Control: ddp.MakeControl(false, true, v), ULP: control(OpReport, v),
		ULPWord: uint32(seq >> reportCountBits), QN: QNReport, MSN: ddp.MSN(count)}
	h.Put(b)
	return ddp.UntaggedLen
}

// placeReport executes a Report of the messages that the peer has delivered, with n bytes of payload, of which there
// must be none. A Report that is older than the last one has no effect.
func (q *QP) placeReport(h *ddp.Untagged, n int) ddp.Cause {
	p := &q.progress
	serial := uint16(h.ULPWord>>reportSerialShift) & reportSerialMask
	ahead := (serial - p.serialIn) & reportSerialMask
	if ahead == 0 || ahead > reportSerialMask/2 {
		return ddp.CauseNone
	}
	count := uint32(h.MSN)
	if int32(count-p.placed) < 0 || int32(p.sent-count) < 0 {
		return ddp.CauseMSNRange
	}
	if h.MO != 0 {
		return ddp.CauseMO
	}
	if n != 0 || !h.Control.Last() {
		return CauseStreamFatal
	}
	q.Counters.ReportsIn++
	p.serialIn, p.placed = serial, count
	waits := h.ULPWord&reportWaits != 0
	if waits != p.peerWaits {
		p.peerWaits = waits
		if waits {
			q.Counters.PeerNotReady++
		}
		if q.cfg.PeerWaits != nil {
			q.cfg.PeerWaits(waits, uint8(h.ULPWord&reportTimerMask))
		}
	}
	q.completeReported()
	return ddp.CauseNone
}

// completeReported completes the messages that the peer's Reports cover and that TCP has released. A Report does not
// release the memory of messages whose bytes TCP may retransmit.
func (q *QP) completeReported() {
	s := &q.sq
	s.reported = max(s.reported, s.head)
	for ; s.reported != s.next; s.reported++ {
		w := s.at(s.reported)
		if w.wantsResponse() || w.isLocal() {
			continue
		}
		if int32(q.progress.placed-w.number) < 0 {
			break
		}
		w.answered = true
	}
	q.completeFinished()
}
