package mpa

import (
	"slices"

	"xwarp/mpa/ulpdu"
	"xwarp/tcp/checksum"
)

// island is a part of the stream without holes.
type island struct {
	start, end int64 // octets [start, end) are kept
	first      int64 // the first known FPDU start; none when no start is known
	chain      int64 // the FPDUs [first, chain) are complete; valid with first
	scan       int64 // the next marker to look at, while no start is known
	list       recordList
	blind      bool // what follows chain is wrong, and waits until it is in order
}

// offerNext takes the segment, which continues the part in order.
func (r *Receiver) offerNext() *ulpdu.Error {
	is, s := &r.inOrder, &r.seg
	l := r.reach(0, true)
	began := is.chain == s.p
	st, err := r.walk(is, l)
	t := min(max(is.chain, s.p), s.q) // up to here all is complete
	s.kept = t
	switch {
	case err != nil:
	case st == again:
	case st == blocked && is.chain >= s.p:
		r.stats.LimitDrops += uint64(s.q - t)
	case t < s.q:
		if is.chain == t && r.doubts() && r.trust.suspect(t, r.fingerprint(t)) {
			r.stats.Suspicious++
			r.refusedFrom, r.refusedTo = t, s.q
			break
		}
		r.stats.Partial++
		r.holdRest(t, s.q-is.chain <= 2*MaxFPDU)
	case began:
		r.stats.Aligned++
		r.trust.clean()
	}
	if !began {
		r.stats.Unaligned++
	}
	is.end = s.kept
	r.stalled = st == blocked
	if err != nil || !r.touches() {
		return err
	}
	if st == walked {
		return r.absorb()
	}
	if st == blocked && r.islands[0].first < 0 { // the walk may have gone into it
		return r.joinInOrder()
	}
	return nil
}

// touches reports whether the first island follows the part in order at once.
func (r *Receiver) touches() bool {
	return len(r.islands) > 0 && r.islands[0].start == r.inOrder.end
}

// holdRest keeps the octets of the segment from t on.
func (r *Receiver) holdRest(t int64, over bool) {
	n := r.store(t, r.seg.q, over)
	r.stats.HeldPartial += uint64(n)
	r.seg.kept = t + n
}

// reach returns how far a walk may go that ends at the segment: over the octets of island i too when it
// follows at once. It cuts the segment where island i begins.
func (r *Receiver) reach(i int, order bool) limit {
	s := &r.seg
	if i == len(r.islands) || r.islands[i].start > s.q {
		return limit{avail: s.q, order: order}
	}
	next := &r.islands[i]
	s.q = next.start // octets beyond were kept before
	if next.list.empty() {
		next.first, next.chain = none, none // a guess that nothing has confirmed: the chain knows better
		next.scan = markerFrom(next.start)
	}
	if next.first >= 0 {
		return limit{avail: next.first, hard: true, order: order}
	}
	return limit{avail: next.end, order: order}
}

// absorb walks on over octets that are held, and joins the islands that follow the part in order at once.
func (r *Receiver) absorb() *ulpdu.Error {
	for {
		r.seg.p, r.seg.q = r.inOrder.end, r.inOrder.end
		l := r.reach(0, true)
		if !r.touches() || l.hard {
			st, err := r.walk(&r.inOrder, l)
			r.stalled = st == blocked
			if err != nil || r.stalled || !r.touches() {
				return err
			}
		}
		if err := r.joinInOrder(); err != nil {
			return err
		}
	}
}

// joinInOrder makes the first island a part of what is in order.
func (r *Receiver) joinInOrder() *ulpdu.Error {
	e, is := &r.inOrder, &r.islands[0]
	if is.first >= 0 {
		if e.chain != is.first {
			r.stats.MarkerErrors++
			return r.die(r.disagree(e.chain))
		}
		e.list.join(r.cfg.Pool, is.list)
		e.chain = is.chain
	}
	e.end = is.end
	r.islands = r.islands[1:]
	return nil
}

// offerBehind takes the segment, which lies behind a hole.
func (r *Receiver) offerBehind() {
	s := &r.seg
	r.stats.Behind++
	if s.p == r.refusedTo { // the rest of the refused FPDU
		r.refusedTo = s.q
	}
	i := r.find(s.p)
	if i > 0 && r.islands[i-1].end > s.p {
		s.skip(r.islands[i-1].end) // kept before
		if s.p == s.q {
			return
		}
	}
	l := r.reach(i, false)
	if s.p == s.q {
		return
	}
	is := island{start: s.p, end: s.p, first: none, chain: none, scan: markerFrom(s.p),
		list: noRecords}
	grown := i > 0 && r.islands[i-1].end == s.p
	if grown {
		is = r.islands[i-1]
	} else if len(r.islands) >= maxIslands {
		r.stats.LimitDrops += uint64(s.q - s.p)
		return
	}
	before := is.chain
	r.fillIsland(&is, l)
	if s.kept == s.p && (is.chain == before || is.list.empty()) {
		return // nothing new, not even from octets held before
	}
	is.end = s.kept
	if grown {
		i--
		r.islands[i] = is
	} else {
		r.insert(i, is)
	}
	if i+1 < len(r.islands) && r.islands[i+1].start == is.end {
		r.merge(i)
	}
}

// fillIsland places or holds the octets of the segment behind is.
func (r *Receiver) fillIsland(is *island, l limit) {
	s := &r.seg
	guessed := false
	if is.first < 0 && !is.blind && r.findStart(is, l.avail) {
		guessed = true
	}
	began := is.first == s.p || is.first >= 0 && is.chain == s.p
	head := s.p
	if guessed && is.first > s.p { // the tail of an FPDU, and more
		head = min(is.first, s.q)
		if r.doubts() && !r.plausible(head) && r.trust.suspect(s.p, r.fingerprint(s.p)) {
			r.stats.Suspicious++
			is.first, is.chain, is.scan = none, none, markerFrom(is.start)
			return
		}
		n := r.store(s.p, head, false)
		r.stats.HeldUnknown += uint64(n)
		if s.p+n < head {
			s.kept = s.p + n
			r.stats.LimitDrops += uint64(s.q - head)
			is.first, is.chain, is.scan = none, none, markerFrom(is.start)
			return
		}
	}
	s.kept = head
	if is.first >= 0 && !is.blind {
		st, _ := r.walk(is, l)
		if is.first >= 0 {
			s.kept = min(max(is.chain, head), s.q)
		}
		if st == again && guessed && is.list.empty() {
			r.reassembly.release(s.p, head) // the marker that showed the start may be what is wrong
			s.kept = s.p
		}
		if st == blocked {
			r.stats.LimitDrops += uint64(s.q - s.kept)
		}
		if st != walked {
			return
		}
	}
	r.holdBehind(is, began)
}

// holdBehind keeps the octets of the segment that no complete FPDU has.
func (r *Receiver) holdBehind(is *island, began bool) {
	s := &r.seg
	t := s.kept
	switch {
	case t == s.q:
		if began {
			r.stats.Aligned++
			r.trust.clean()
		}
	case is.blind:
		s.kept = t + r.store(t, s.q, false)
		r.stats.HeldUnknown += uint64(s.kept - t)
	case is.first < 0:
		r.stats.Unknown++
		if r.doubts() && !r.plausible(s.q) && r.trust.suspect(t, r.fingerprint(t)) {
			r.stats.Suspicious++
			return
		}
		s.kept = t + r.store(t, s.q, false)
		r.stats.HeldUnknown += uint64(s.kept - t)
	default:
		if is.chain == t && r.doubts() && r.trust.suspect(t, r.fingerprint(t)) {
			r.stats.Suspicious++
			return
		}
		r.stats.Partial++
		r.holdRest(t, false)
	}
}

// plausible reports whether the segment up to to is a row of whole FPDUs with right CRCs, if it begins with one.
func (r *Receiver) plausible(to int64) bool {
	for at := r.seg.p; at < to; {
		length := r.lengthAt(at)
		if length+lengthLen > to {
			return false
		}
		end := at + int64(r.cfg.Size(uint64(at), r.u16(length)))
		if end > to || !crcRight(r.gather(at, end)) {
			return false
		}
		at = end
	}
	return true
}

// fingerprint returns what stands for the octets of the segment from at on.
func (r *Receiver) fingerprint(at int64) (f fingerprint) {
	f.n = r.seg.q - at
	for from, i := at, 0; from < r.seg.q; i++ {
		to := min(at+16<<i, r.seg.q)
		for from < to {
			b := r.chunk(from, to)
			f.whole = checksum.CRC(f.whole, b)
			from += int64(len(b))
		}
		if i < len(f.halves) {
			f.halves[i] = f.whole
		}
	}
	return f
}

// findStart looks in is and the segment for a marker whose FPDU begins there, and makes that the start of the chain.
func (r *Receiver) findStart(is *island, avail int64) bool {
	if !r.cfg.Markers || r.cfg.AnyMarkerOrigin && !r.cfg.CRC {
		return false
	}
	for ; is.scan+MarkerLen <= avail; is.scan += MarkerInterval {
		if at := r.fpduOf(is.scan, int64(r.u16(is.scan+2))); at >= is.start {
			is.first, is.chain = at, at
			return true
		}
		if is.scan-is.start > maxScan*MarkerInterval {
			is.blind = true // no FPDU is that large
			return false
		}
	}
	return false
}

// markerFrom returns the place of the first marker at or after at.
func markerFrom(at int64) int64 { return (at + MarkerInterval - 1) &^ (MarkerInterval - 1) }

// find returns the index of the first island that begins behind at.
func (r *Receiver) find(at int64) int {
	lo, hi := 0, len(r.islands)
	if hi > 0 && r.islands[hi-1].start <= at {
		return hi // most segments come behind all others
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

// insert makes is island i.
func (r *Receiver) insert(i int, is island) {
	if len(r.islands) == cap(r.islands) {
		if cap(r.base) < 2*len(r.islands)+8 {
			r.base = make([]island, 0, 4*len(r.islands)+8)
		}
		r.islands = append(r.base[:0], r.islands...) // move to the front of the array, or to the new one
	}
	r.islands = slices.Insert(r.islands, i, is)
}

// merge joins islands i and i+1, which follow each other at once, if their chains agree.
func (r *Receiver) merge(i int) {
	a, b := &r.islands[i], &r.islands[i+1]
	switch {
	case b.first < 0:
		a.blind = a.blind || b.blind
	case a.first >= 0 && !a.blind && a.chain == b.first:
		a.list.join(r.cfg.Pool, b.list)
		a.chain, a.blind = b.chain, b.blind
	case a.first < 0 && !a.blind:
		a.first, a.chain, a.list, a.blind = b.first, b.chain, b.list, b.blind
	default:
		return // they disagree: the chain in order will tell
	}
	a.end = b.end
	r.islands = slices.Delete(r.islands, i+1, i+2)
}
