package mpa

import (
	"fmt"

	"xwarp/mpa/ulpdu"
)

// verdict is the result of a walk over the FPDUs of an island and the segment.
type verdict uint8

const (
	accept   verdict = iota // every complete FPDU is placed; the bytes behind them may be held
	stopped                 // an FPDU out of order is wrong: its bytes may be held, and the walk continues in order
	refuse                  // the segment's bytes from chainEnd on count as never received: TCP sends them again
	postpone                // a limit prevents the next FPDU
	fail                    // the stream has ended with Receiver.err
)

// walkLimit is where a walk ends.
type walkLimit struct {
	end        int64 // the bytes before it are there
	endsAtFPDU bool  // an FPDU is known to begin at end
	inOrder    bool  // nothing is missing in front
}

// walk follows the length chain of isl from chainEnd to l. It checks, places and records each complete FPDU.
func (r *Receiver) walk(isl *island, l walkLimit) verdict {
	for {
		start := isl.chainEnd
		length := r.lengthAt(start)
		if length+lengthLen > l.end {
			if l.endsAtFPDU && start < l.end {
				return r.judgeWrong(isl, l, l.end, ulpdu.CodeMarker)
			}
			return accept
		}
		n := r.u16(length)
		if n > MaxULPDU {
			return r.judgeWrong(isl, l, length+lengthLen, ulpdu.CodeCRC)
		}
		end := start + int64(r.cfg.Size(uint64(start), n))
		if end > l.end {
			if l.endsAtFPDU {
				return r.judgeWrong(isl, l, l.end, ulpdu.CodeMarker)
			}
			return accept
		}
		fpdu := r.gather(start, end)
		if fpdu == nil {
			r.endStream(errNotHeld(start))
			return fail
		}
		if r.cfg.CRC && !isCRCRight(fpdu) {
			return r.judgeWrong(isl, l, end, ulpdu.CodeCRC)
		}
		if r.cfg.Markers && !r.areMarkersRight(fpdu, start, length, end) {
			r.stats.MarkerErrors++
			if l.inOrder {
				r.endStream(markerError(start))
				return fail
			}
			return r.stopWalking(isl)
		}
		if v := r.placeFPDU(isl, l, fpdu, start, length, end, n); v != accept {
			return v
		}
	}
}

// judgeWrong decides about the FPDU at chainEnd. The bytes up to end show that it is wrong: it has a wrong CRC, an
// impossible length, or it extends over the known start of another FPDU. code is the MPA error code.
func (r *Receiver) judgeWrong(isl *island, l walkLimit, end int64, code uint8) verdict {
	// Only bytes of the segment can be refused; earlier ones are acknowledged.
	if isl.chainEnd < r.seg.end && end > r.seg.start && !r.cfg.Strict &&
		r.cuts.refuseWrong(isl.chainEnd, l.inOrder) {
		r.stats.CRCDrops++
		return refuse
	}
	if !l.inOrder {
		return r.stopWalking(isl)
	}
	if code == ulpdu.CodeMarker {
		r.stats.MarkerErrors++
		r.endStream(markerError(isl.chainEnd))
		return fail
	}
	fault, n := "wrong CRC", r.u16(r.lengthAt(isl.chainEnd))
	if n > MaxULPDU {
		fault = fmt.Sprintf("a ULPDU has at most %d bytes, so no CRC was checked", MaxULPDU)
	}
	r.endStream(ulpdu.Newf(ulpdu.MPA, 0, ulpdu.CodeCRC,
		"FPDU at stream offset %d, length field %d: %s%s", isl.chainEnd, n, fault,
		r.whyNotRepaired(isl.chainEnd)))
	return fail
}

// whyNotRepaired says why TCP could not repair the wrong FPDU at the stream offset.
func (r *Receiver) whyNotRepaired(at int64) string {
	switch {
	case r.cfg.Layered: // a socket has acknowledged all of it
	case at < r.seg.start:
		return fmt.Sprintf("; its first %d bytes arrived in earlier segments and were acknowledged "+
			"before its CRC could be checked, "+
			"so TCP cannot have them sent again: they were changed on the way, or by the sender",
			r.seg.start-at)
	case r.cuts.wrongInOrderAt == at && r.cuts.wrongInOrder > 1:
		return ", also when sent again; the sender or a device that computes checksums on the " +
			"way is at fault"
	}
	return ""
}

// stopWalking ends the walks along isl until isl is in order. Its bytes are held, and the length chain decides then.
func (r *Receiver) stopWalking(isl *island) verdict {
	isl.walkStopped = true
	if isl.records.empty() {
		isl.chainStart, isl.chainEnd = none, none
		r.stats.BadGuesses++
	}
	return stopped
}

// placeFPDU places and records the FPDU in [start, end), whose ULPDU has n bytes. Place may panic in order: nothing is
// changed before.
func (r *Receiver) placeFPDU(isl *island, l walkLimit, fpdu [][]byte, start, length, end int64,
	n int) verdict {
	if !r.hasFreeRecord(l.inOrder) {
		return postpone
	}
	v := r.viewOf(fpdu, start, length, n)
	inOrder := l.inOrder && isl.records.empty()
	kind := placed
	if err := r.sink.Place(v, inOrder); err != nil {
		if inOrder && err != ulpdu.NotReady {
			r.endStream(err)
			return fail
		}
		if !r.holdFPDU(start, end) {
			r.waiting = r.waiting || inOrder // bytes of it may be held already
			return postpone
		}
		kind = unplaced
		r.stats.HeldWhole++
	} else {
		r.releaseFPDU(start, end)
		r.countPlaced(isl, l, start)
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
	isl.chainEnd = end
	r.addRecord(isl, i)
	// A first record that is not placed waits for the next Advance: placing it would replace the segment of this walk.
	if r.cfg.Layered && r.cfg.Pool.records[isl.records.head].kind != unplaced &&
		r.deliverUpTo(end) != nil {
		return fail
	}
	return accept
}

func (r *Receiver) countPlaced(isl *island, l walkLimit, start int64) {
	switch {
	case l.inOrder:
		r.stats.InOrder++
	case start == isl.chainStart:
		r.stats.OutByMarker++
	default:
		r.stats.OutByChain++
	}
}

// addRecord appends record i to the island's. Consecutive silent records become one.
func (r *Receiver) addRecord(isl *island, i int32) {
	p := r.cfg.Pool
	if rec := &p.records[i]; rec.kind == silent && !isl.records.empty() {
		if last := &p.records[isl.records.tail]; last.kind == silent && last.end == rec.start {
			last.end = rec.end
			last.count++
			r.freeRecord(i)
			return
		}
	}
	isl.records.add(p, i)
}
