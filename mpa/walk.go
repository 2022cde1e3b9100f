package mpa

import (
	"fmt"

	"xwarp/mpa/ulpdu"
)

// limit says how far a walk may go.
type limit struct {
	avail int64 // octets are there up to here
	hard  bool  // and here an FPDU is known to begin
	order bool  // nothing is missing in front
}

// step is how a walk ended.
type step uint8

const (
	walked  step = iota // all complete FPDUs are done; the rest is part of one
	again               // the octets of the segment from the chain on count as never received
	blocked             // a limit stands against the next FPDU
)

// walk goes along the length chain of is as far as FPDUs are complete, and checks, places and records them.
func (r *Receiver) walk(is *island, l limit) (step, *ulpdu.Error) {
	for {
		start := is.chain
		length := r.lengthAt(start)
		if length+lengthLen > l.avail {
			if l.hard && start < l.avail {
				return r.wrong(is, l, l.avail, CodeMarker)
			}
			return walked, nil
		}
		n := r.u16(length)
		if n > MaxULPDU {
			return r.wrong(is, l, length+lengthLen, CodeCRC)
		}
		end := start + int64(r.cfg.Size(uint64(start), n))
		if end > l.avail {
			if l.hard {
				return r.wrong(is, l, l.avail, CodeMarker)
			}
			return walked, nil
		}
		x := r.gather(start, end)
		if x == nil {
			return walked, r.die(r.lost(start))
		}
		if r.cfg.CRC && !crcRight(x) {
			return r.wrong(is, l, end, CodeCRC)
		}
		if r.cfg.Markers && !r.markersRight(x, start, length, end) {
			r.stats.MarkerErrors++
			if l.order {
				return walked, r.die(r.disagree(start))
			}
			r.blind(is)
			return walked, nil
		}
		if st, err := r.complete(is, l, x, start, length, end, n); st != walked || err != nil {
			return st, err
		}
	}
}

// complete places and records the FPDU x, which is [start, end). Place may panic in order: nothing is changed before.
func (r *Receiver) complete(is *island, l limit, x [][]byte, start, length, end int64, n int) (step,
	*ulpdu.Error) {
	if !r.recordFree(l.order) {
		return blocked, nil
	}
	v := r.viewOf(x, start, length, n)
	order := l.order && is.list.empty()
	kind := placed
	if err := r.sink.Place(v, order); err != nil {
		if order {
			return walked, r.die(err)
		}
		if !r.keep(start, end) {
			return blocked, nil
		}
		kind = refused
		r.stats.HeldWhole++
	} else {
		r.forget(start, end)
		r.countPlaced(is, l, start)
	}
	i := r.newRecord()
	rec := &r.cfg.Pool.recs[i]
	rec.start, rec.end, rec.n, rec.count, rec.kind = start, end, uint16(n), 1, kind
	copy(rec.hdr[:], v.Header(HeaderKept, rec.hdr[:]))
	if kind == placed && !order && r.sink.Silent(rec.hdr[:min(n, HeaderKept)], n) {
		rec.kind = silent
	}
	if start < r.seg.p || end > r.seg.q {
		r.stats.Spanning++
	}
	r.stats.FPDUs++
	is.chain = end
	r.addRecord(is, i)
	if r.cfg.Layered {
		return walked, r.deliver(end)
	}
	return walked, nil
}

func (r *Receiver) countPlaced(is *island, l limit, start int64) {
	switch {
	case l.order:
		r.stats.InOrder++
	case start == is.first:
		r.stats.OutByMarker++
	default:
		r.stats.OutByChain++
	}
}

// addRecord appends record i to the island's, and lets it join a run of silent ones.
func (r *Receiver) addRecord(is *island, i int32) {
	p := r.cfg.Pool
	if rec := &p.recs[i]; rec.kind == silent && !is.list.empty() {
		if last := &p.recs[is.list.tail]; last.kind == silent && last.end == rec.start {
			last.end = rec.end
			last.count++
			r.dropRecord(i)
			return
		}
	}
	is.list.add(p, i)
}

// recordFree reports whether there may be one more record. A few in order may exceed the bounds.
func (r *Receiver) recordFree(order bool) bool {
	p := r.cfg.Pool
	return order && r.inOrder.list.n < overdraft ||
		r.records < r.cfg.RecordLimit && p.recUsed < p.recLimit
}

func (r *Receiver) newRecord() int32 {
	r.records++
	r.stats.RecordsHigh = max(r.stats.RecordsHigh, r.records)
	return r.cfg.Pool.record()
}

func (r *Receiver) dropRecord(i int32) {
	r.cfg.Pool.freeRecord(i)
	r.records--
}

// keep holds the octets of [start, end) that lie in the segment.
func (r *Receiver) keep(start, end int64) bool {
	from, to := max(start, r.seg.p), min(end, r.seg.q)
	n := r.put(from, to, false)
	if n < to-from {
		r.reassembly.release(from, from+n)
		return false
	}
	return true
}

// forget releases the octets of [start, end) that do not lie in the segment.
func (r *Receiver) forget(start, end int64) {
	if start < r.seg.p {
		r.reassembly.release(start, min(end, r.seg.p))
	}
	if end > r.seg.q {
		r.reassembly.release(max(start, r.seg.q), end)
	}
}

// store is put, and counts what found no room.
func (r *Receiver) store(from, to int64, over bool) int64 {
	n := r.put(from, to, over)
	r.stats.LimitDrops += uint64(to - from - n)
	return n
}

// put holds the octets [from, to) of the segment and returns how many found room.
func (r *Receiver) put(from, to int64, over bool) (n int64) {
	floor := r.inOrder.chain
	if !r.inOrder.list.empty() {
		floor = r.cfg.Pool.recs[r.inOrder.list.head].start
	}
	for from < to {
		b := r.chunk(from, to)
		k := int64(r.reassembly.store(from, b, floor, over))
		n += k
		from += k
		if k < int64(len(b)) {
			break
		}
	}
	return n
}

// wrong decides about the FPDU at the chain, of which octets to end show that it is wrong: it has a bad CRC,
// an impossible length, or runs over the known start of another.
func (r *Receiver) wrong(is *island, l limit, end int64, code uint8) (step, *ulpdu.Error) {
	fresh := is.chain < r.seg.q && end > r.seg.p // the segment has a part in it, and could be sent again
	if !l.order {
		if fresh && !r.cfg.Strict && r.trust.fail(is.chain) <= maxRepeats {
			r.stats.CRCDrops++
			return again, nil
		}
		r.blind(is)
		return walked, nil
	}
	if fresh && !r.cfg.Strict && r.trust.failInOrder(is.chain) <= maxRepeats {
		r.stats.CRCDrops++
		return again, nil
	}
	if code == CodeMarker {
		r.stats.MarkerErrors++
		return walked, r.die(r.disagree(is.chain))
	}
	what, n := "wrong CRC", r.u16(r.lengthAt(is.chain))
	if n > MaxULPDU {
		what = fmt.Sprintf("a ULPDU has at most %d bytes, so no CRC was checked", MaxULPDU)
	}
	return walked, r.die(ulpdu.Newf(ulpdu.MPA, 0, CodeCRC, "FPDU at stream offset %d, length "+
		"field %d: %s%s", is.chain, n, what, r.tries(is.chain)))
}

// tries says what was done about the wrong FPDU at, and what that tells.
func (r *Receiver) tries(at int64) string {
	again := r.trust.inOrderAt == at && r.trust.inOrderFails > 1
	switch {
	case r.cfg.Layered: // a socket has acknowledged it all
	case at < r.seg.p:
		return fmt.Sprintf("; its first %d bytes came in earlier segments and were acknowledged "+
			"before its CRC could be checked, "+
			"so TCP cannot have them sent again: they were changed on the way, or by the sender",
			r.seg.p-at)
	case again:
		return ", also when sent again; the sender or a device that computes checksums on the " +
			"way is at fault"
	}
	return ""
}

func (r *Receiver) disagree(at int64) *ulpdu.Error {
	return ulpdu.Newf(ulpdu.MPA, 0, CodeMarker,
		"FPDU at stream offset %d: the markers and the length chain disagree", at)
}

// blind gives up walking along is before it is in order: what is there is held, and the length chain decides.
func (r *Receiver) blind(is *island) {
	is.blind = true
	if is.list.empty() {
		is.first, is.chain = none, none
		r.stats.BadGuesses++
	}
}
