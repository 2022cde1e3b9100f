package mpa

import (
	"fmt"

	"xwarp/mpa/ulpdu"
	"xwarp/tcp/checksum"
)

// verdict is the result of a walk over the FPDUs of a part of the stream and the segment.
type verdict uint8

const (
	accept   verdict = iota // every complete FPDU is recorded; the bytes behind them may be held
	stopped                 // an FPDU out of order is wrong: its bytes may be held, and the walk continues in order
	refuse                  // the segment's bytes from chainEnd on count as never received: TCP sends them again
	postpone                // a limit prevents that the next FPDU is recorded
	fail                    // the stream has ended with Receiver.err
)

// walkLimit is the end of a walk.
type walkLimit struct {
	end        int64 // all bytes before it have been received
	endsAtFPDU bool  // an FPDU is known to begin at end
	inOrder    bool  // the walk is along the part in order
}

// walk follows the length chain of p from chainEnd to l. It checks, places and records each complete FPDU.
func (r *Receiver) walk(p *part, l walkLimit) verdict {
	for {
		start := p.chainEnd
		length := r.lengthFieldAt(start)
		if length+lengthLen > l.end {
			if l.endsAtFPDU && start < l.end {
				return r.judgeWrong(p, l, l.end, ulpdu.CodeMarker)
			}
			return accept
		}
		n := r.u16(length)
		if n > MaxULPDU {
			return r.judgeWrong(p, l, length+lengthLen, ulpdu.CodeCRC)
		}
		end := start + int64(r.cfg.Size(uint64(start), n))
		if end > l.end {
			if l.endsAtFPDU {
				return r.judgeWrong(p, l, l.end, ulpdu.CodeMarker)
			}
			return accept
		}
		fpdu := r.gather(start, end)
		if fpdu == nil {
			r.endStream(errNotHeld(start))
			return fail
		}
		if r.cfg.CRC && !isCRCRight(fpdu, checksum.Known{}) {
			return r.judgeWrong(p, l, end, ulpdu.CodeCRC)
		}
		if r.cfg.Markers && !r.areMarkersRight(fpdu, start, length, end) {
			r.stats.MarkerErrors++
			if l.inOrder {
				r.endStream(markerError(start))
				return fail
			}
			return r.stopWalking(p)
		}
		if v := r.placeFPDU(p, l, fpdu, start, length, end, n); v != accept {
			return v
		}
	}
}

// judgeWrong decides about the FPDU at chainEnd. The bytes up to end show that it is wrong: it has a wrong CRC, an
// impossible length, or it extends over the known start of another FPDU. code is the MPA error code.
func (r *Receiver) judgeWrong(p *part, l walkLimit, end int64, code uint8) verdict {
	// Only bytes of the segment can be refused; earlier ones are acknowledged.
	if p.chainEnd < r.seg.end && end > r.seg.start && r.mayArriveRight(p.chainEnd, l.inOrder) {
		r.stats.CRCDrops++
		return refuse
	}
	if !l.inOrder {
		return r.stopWalking(p)
	}
	if code == ulpdu.CodeMarker {
		r.stats.MarkerErrors++
		r.endStream(markerError(p.chainEnd))
		return fail
	}
	fault, n := "wrong CRC", r.u16(r.lengthFieldAt(p.chainEnd))
	if n > MaxULPDU {
		fault = fmt.Sprintf("a ULPDU has at most %d bytes, so no CRC was checked", MaxULPDU)
	}
	r.endStream(ulpdu.Newf(ulpdu.MPA, 0, ulpdu.CodeCRC,
		"FPDU at stream offset %d, length field %d: %s%s", p.chainEnd, n, fault,
		r.whyNotRepaired(p.chainEnd)))
	return fail
}

// mayArriveRight counts the wrong FPDU at the stream offset, and reports whether TCP should send it again: with Strict
// never, in order maxRepeats times, behind a hole always, because the wrong bytes are not acknowledged before the hole
// is filled.
func (r *Receiver) mayArriveRight(at int64, inOrder bool) bool {
	if r.cfg.Strict || !inOrder {
		return !r.cfg.Strict
	}
	if r.wrongAt != at {
		r.wrongAt, r.wrong = at, 0
	}
	r.wrong++
	return r.wrong <= maxRepeats
}

// whyNotRepaired returns why TCP could not repair the wrong FPDU at the stream offset, as the end of an error text. It
// is empty if there is nothing to add.
func (r *Receiver) whyNotRepaired(at int64) string {
	switch {
	case r.cfg.Layered: // a socket has acknowledged all of it
	case at < r.seg.start:
		return fmt.Sprintf("; its first %d bytes arrived in earlier segments and were acknowledged "+
			"before its CRC could be checked, "+
			"so TCP cannot recover them: they were corrupted on the path, or by the sender",
			r.seg.start-at)
	case r.wrongAt == at && r.wrong > 1:
		return ", also after retransmission; the sender or a device on the path that recomputes " +
			"checksums corrupts it"
	}
	return ""
}

// stopWalking ends the walks along p until p is in order. Its bytes are held, and the length chain decides then.
func (r *Receiver) stopWalking(p *part) verdict {
	p.walkStopped = true
	if p.records.empty() {
		p.chainStart, p.chainEnd = none, none
		r.stats.BadGuesses++
	}
	return stopped
}

// placeFPDU places and records the FPDU in [start, end), whose ULPDU has n bytes. In order, Place may panic, so nothing
// is changed before that call.
func (r *Receiver) placeFPDU(p *part, l walkLimit, fpdu [][]byte, start, length, end int64,
	n int) verdict {
	if !r.hasFreeRecord(l.inOrder) {
		return postpone
	}
	v := r.viewOf(fpdu, start, length, n)
	inOrder := l.inOrder && p.records.empty()
	kind := placed
	if err := r.sink.Place(v, inOrder); err != nil {
		if inOrder && err != ulpdu.NotReady {
			r.endStream(err)
			return fail
		}
		if !r.holdFPDU(start, end) {
			r.waiting = r.waiting || inOrder // its bytes of earlier segments stay held
			return postpone
		}
		kind = unplaced
		r.stats.HeldWhole++
	} else {
		r.releaseFPDU(start, end)
		r.countPlaced(p, l, start)
	}
	i := r.newRecord()
	rec := &r.cfg.Pool.records[i]
	rec.start, rec.end, rec.n, rec.count, rec.kind = start, end, uint16(n), 1, kind
	copy(rec.hdr[:], v.Header(HeaderKept, rec.hdr[:]))
	if kind == placed && !inOrder && r.sink.Silent(rec.hdr[:min(n, HeaderKept)], n) {
		rec.kind = silent
	}
	if start < r.seg.start || end > r.seg.end {
		r.stats.Spanning++
	}
	r.stats.FPDUs++
	p.chainEnd = end
	r.addRecord(p, i)
	// A first record that is not placed waits for the next Advance: placing it would replace the segment of this walk.
	if r.cfg.Layered && r.cfg.Pool.records[p.records.head].kind != unplaced &&
		r.deliverUpTo(end) != nil {
		return fail
	}
	return accept
}

func (r *Receiver) countPlaced(p *part, l walkLimit, start int64) {
	switch {
	case l.inOrder:
		r.stats.InOrder++
	case start == p.chainStart:
		r.stats.OutByMarker++
	default:
		r.stats.OutByChain++
	}
}

// addRecord appends record i to the records of p. Consecutive silent records become one.
func (r *Receiver) addRecord(p *part, i int32) {
	pool := r.cfg.Pool
	if rec := &pool.records[i]; rec.kind == silent && !p.records.empty() {
		if last := &pool.records[p.records.tail]; last.kind == silent && last.end == rec.start {
			last.end = rec.end
			last.count++
			r.freeRecord(i)
			return
		}
	}
	p.records.add(pool, i)
}
