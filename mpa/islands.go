package mpa

import (
	"slices"

	"xwarp/mpa/ulpdu"
)

// part is a piece of the stream without holes: the one in order, or an island, which lies behind a hole. Its chain is
// the FPDUs that are known in it: each one's length field shows where the next one begins.
type part struct {
	start, end int64 // the bytes [start, end) are kept: placed or held
	// The FPDUs in [chainStart, chainEnd) are complete. chainStart is where the first known FPDU begins; both
	// are none while no start is known.
	chainStart, chainEnd int64
	nextMarker           int64 // the marker to read next, while no start is known
	records              recordList
	walkStopped          bool // what follows chainEnd is wrong: no walk enters it until it is in order
}

// offerInOrder accepts the segment, which continues the part in order.
func (r *Receiver) offerInOrder() *ulpdu.Error {
	p, s := &r.inOrder, &r.seg
	r.trimSegment(0)
	l := r.walkLimit(0, true)
	startsAligned := p.chainEnd == s.start
	v := r.walk(p, l)
	s.kept = min(max(p.chainEnd, s.start), s.end) // all FPDUs before kept are complete
	switch {
	case v == fail, v == refuse:
	case v == postpone && p.chainEnd >= s.start: // the FPDU begins in this segment, not in held bytes
		r.stats.LimitDrops += uint64(s.end - s.kept)
	case s.kept < s.end:
		r.stats.Partial++
		r.holdPartial(s.kept, s.end-p.chainEnd <= byteOverdraft)
	case startsAligned:
		r.stats.Aligned++
	}
	if !startsAligned {
		r.stats.Unaligned++
	}
	p.end = s.kept
	r.awaitsRecords = v == postpone
	switch {
	case v == fail:
		return r.err
	case !r.islandFollows():
		return nil
	case v == accept:
		return r.absorbIslands()
	case v == postpone && r.islands[0].chainStart < 0: // the walk may have placed FPDUs of this island
		return r.joinFirstIsland()
	}
	return nil
}

// islandFollows reports whether the first island follows the part in order without a hole.
func (r *Receiver) islandFollows() bool {
	return len(r.islands) > 0 && r.islands[0].start == r.inOrder.end
}

// reaches reports whether island i begins in the segment or directly behind it.
func (r *Receiver) reaches(i int) bool {
	return i < len(r.islands) && r.islands[i].start <= r.seg.end
}

// trimSegment cuts the segment where island i begins: the bytes of the island were kept before. If no complete FPDU has
// confirmed the start of the island's chain, that start is dropped: the chain that reaches the island from the front
// decides.
func (r *Receiver) trimSegment(i int) {
	if !r.reaches(i) {
		return
	}
	next := &r.islands[i]
	r.seg.end = next.start
	if next.records.empty() {
		next.dropStart(next.start)
	}
}

// walkLimit returns the limit of a walk through the segment, which trimSegment has trimmed. If island i follows
// directly, the limit is the start of the island's chain, or the end of the island if no start is known.
func (r *Receiver) walkLimit(i int, inOrder bool) walkLimit {
	if !r.reaches(i) {
		return walkLimit{end: r.seg.end, inOrder: inOrder}
	}
	next := &r.islands[i]
	if next.chainStart >= 0 {
		return walkLimit{end: next.chainStart, endsAtFPDU: true, inOrder: inOrder}
	}
	return walkLimit{end: next.end, inOrder: inOrder}
}

// dropStart forgets the start of the chain. The search for markers begins again at stream offset from.
func (isl *part) dropStart(from int64) {
	isl.chainStart, isl.chainEnd, isl.nextMarker = none, none, firstMarker(from)
}

// absorbIslands continues the walk in order over held bytes, and joins the islands that follow without a hole.
func (r *Receiver) absorbIslands() *ulpdu.Error {
	for {
		r.seg.start, r.seg.end = r.inOrder.end, r.inOrder.end
		r.trimSegment(0)
		l := r.walkLimit(0, true)
		if !r.islandFollows() || l.endsAtFPDU {
			v := r.walk(&r.inOrder, l)
			r.awaitsRecords = v == postpone
			if v == fail {
				return r.err
			}
			if r.awaitsRecords || !r.islandFollows() {
				return nil
			}
		}
		if err := r.joinFirstIsland(); err != nil {
			return err
		}
	}
}

// joinFirstIsland adds the first island to the part in order. It ends the stream if the island's chain does not start
// at chainEnd of the part in order.
func (r *Receiver) joinFirstIsland() *ulpdu.Error {
	p, isl := &r.inOrder, &r.islands[0]
	if isl.chainStart >= 0 {
		if p.chainEnd != isl.chainStart {
			r.stats.MarkerErrors++
			return r.endStream(markerError(p.chainEnd))
		}
		p.records.join(r.cfg.Pool, isl.records)
		p.chainEnd = isl.chainEnd
	}
	p.end = isl.end
	r.islands = r.islands[1:]
	return nil
}

// offerOutOfOrder accepts the segment, which lies behind a hole.
func (r *Receiver) offerOutOfOrder() {
	s := &r.seg
	r.stats.Behind++
	i := r.islandAfter(s.start)
	if i > 0 && r.islands[i-1].end > s.start {
		s.skipTo(r.islands[i-1].end) // kept before
		if s.empty() {
			return
		}
	}
	r.trimSegment(i)
	if s.empty() {
		return
	}
	l := r.walkLimit(i, false)
	isl := part{start: s.start, end: s.start, chainStart: none, chainEnd: none,
		nextMarker: firstMarker(s.start), records: noRecords}
	extends := i > 0 && r.islands[i-1].end == s.start
	if extends {
		isl = r.islands[i-1]
	} else if len(r.islands) >= maxIslands {
		r.stats.LimitDrops += uint64(s.end - s.start)
		return
	}
	before := isl.chainEnd
	r.extendIsland(&isl, l)
	if s.kept == s.start && (isl.chainEnd == before || isl.records.empty()) {
		return // nothing new, not even from bytes held before
	}
	isl.end = s.kept
	if extends {
		i--
		r.islands[i] = isl
	} else {
		r.insertIsland(i, isl)
	}
	if i+1 < len(r.islands) && r.islands[i+1].start == isl.end {
		r.mergeIslands(i)
	}
}

// extendIsland places or holds the bytes of the segment, which follows isl.
func (r *Receiver) extendIsland(isl *part, l walkLimit) {
	s := &r.seg
	byMarker := isl.chainStart < 0 && !isl.walkStopped && r.findStart(isl, l.end)
	startsAligned := isl.chainStart == s.start || isl.chainStart >= 0 && isl.chainEnd == s.start
	head := s.start
	if byMarker && isl.chainStart > s.start { // the segment begins with the tail of an FPDU
		head = min(isl.chainStart, s.end)
		n := r.hold(s.start, head, false)
		r.stats.HeldUnknown += uint64(n)
		if s.start+n < head {
			s.kept = s.start + n
			r.stats.LimitDrops += uint64(s.end - head)
			isl.dropStart(isl.start)
			return
		}
	}
	s.kept = head
	if isl.chainStart >= 0 && !isl.walkStopped {
		v := r.walk(isl, l)
		if isl.chainStart >= 0 {
			s.kept = min(max(isl.chainEnd, head), s.end)
		}
		if v == refuse && byMarker && isl.records.empty() {
			r.reassembly.release(s.start, head) // the marker that showed the start may be wrong
			s.kept = s.start
		}
		if v == postpone {
			r.stats.LimitDrops += uint64(s.end - s.kept)
		}
		if v != accept && v != stopped {
			return
		}
	}
	r.holdOutOfOrder(isl, startsAligned)
}

// holdOutOfOrder holds the bytes of the segment that belong to no complete FPDU.
func (r *Receiver) holdOutOfOrder(isl *part, startsAligned bool) {
	s := &r.seg
	at := s.kept
	switch {
	case at == s.end:
		if startsAligned {
			r.stats.Aligned++
		}
	case isl.walkStopped:
		r.holdUnknown(at)
	case isl.chainStart < 0:
		r.stats.Unknown++
		r.holdUnknown(at)
	default:
		r.stats.Partial++
		r.holdPartial(at, false)
	}
}

// islandAfter returns the index of the first island that begins behind stream offset at.
func (r *Receiver) islandAfter(at int64) int {
	lo, hi := 0, len(r.islands)
	if hi > 0 && r.islands[hi-1].start <= at {
		return hi // most segments arrive behind all others
	}
	for lo < hi {
		if mid := (lo + hi) / 2; r.islands[mid].start <= at {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// insertIsland inserts isl as island i.
func (r *Receiver) insertIsland(i int, isl part) {
	if len(r.islands) == cap(r.islands) {
		if cap(r.islandArray) < 2*len(r.islands)+8 {
			r.islandArray = make([]part, 0, 4*len(r.islands)+8)
		}
		// move to the front of the array, or to the new one
		r.islands = append(r.islandArray[:0], r.islands...)
	}
	r.islands = slices.Insert(r.islands, i, isl)
}

// mergeIslands joins islands i and i+1, which have no hole between them, if their chains agree.
func (r *Receiver) mergeIslands(i int) {
	a, b := &r.islands[i], &r.islands[i+1]
	switch {
	case b.chainStart < 0:
		a.walkStopped = a.walkStopped || b.walkStopped
	case a.chainStart >= 0 && !a.walkStopped && a.chainEnd == b.chainStart:
		a.records.join(r.cfg.Pool, b.records)
		a.chainEnd, a.walkStopped = b.chainEnd, b.walkStopped
	case a.chainStart < 0 && !a.walkStopped:
		a.chainStart, a.chainEnd = b.chainStart, b.chainEnd
		a.records, a.walkStopped = b.records, b.walkStopped
	default:
		return // they disagree: the chain in order decides later
	}
	a.end = b.end
	r.islands = slices.Delete(r.islands, i+1, i+2)
}
