package tcp

import "xwarp/tcp/seq"

// outOfOrder is the set of bytes kept beyond RCV.NXT: disjoint ranges in order, no two of them adjacent.
// Config.MaxHoles limits the number of ranges. A search is binary, and an insertion moves each range at most once.
type outOfOrder struct {
	ranges []seq.Range
	// recent are the starts of the latest additions, newest first: the order of SACK blocks (RFC 2018, 4).
	recent  [4]seq.Num
	nRecent int
	// high is the maximum of bytes.
	bytes, high int
	steps       uint64 // comparisons and moved ranges, for a test of the cost
}

func (ooo *outOfOrder) reset() { *ooo = outOfOrder{ranges: ooo.ranges[:0]} }

// drop empties the set.
func (ooo *outOfOrder) drop() { ooo.ranges, ooo.bytes = ooo.ranges[:0], 0 }

func (ooo *outOfOrder) empty() bool { return len(ooo.ranges) == 0 }

// end returns the end of the last range of a set that is not empty.
func (ooo *outOfOrder) end() seq.Num { return ooo.ranges[len(ooo.ranges)-1].End }

// after returns the index of the first range that ends after s, the number of ranges if none does.
func (ooo *outOfOrder) after(s seq.Num) int {
	lo, hi := 0, len(ooo.ranges)
	for lo < hi {
		m := int(uint(lo+hi) / 2)
		if s.Less(ooo.ranges[m].End) {
			hi = m
		} else {
			lo = m + 1
		}
		ooo.steps++
	}
	return lo
}

// touching returns the indexes [i, j) of the ranges that overlap r or are adjacent to it.
func (ooo *outOfOrder) touching(r seq.Range) (i, j int) {
	i = ooo.after(r.Start - 1)
	for j = i; j < len(ooo.ranges) && ooo.ranges[j].Start.LessEq(r.End); j++ {
		ooo.steps++
	}
	return i, j
}

// add adds r, which must not be empty.
func (ooo *outOfOrder) add(r seq.Range) {
	i, j := ooo.touching(r)
	if i == j {
		ooo.ranges = append(ooo.ranges, seq.Range{})
		copy(ooo.ranges[i+1:], ooo.ranges[i:])
		ooo.steps += uint64(len(ooo.ranges) - i)
		ooo.ranges[i] = r
		ooo.addBytes(r.Len())
	} else {
		old := 0
		for _, o := range ooo.ranges[i:j] {
			old += o.Len()
		}
		n := seq.Range{Start: seq.Min(r.Start, ooo.ranges[i].Start),
			End: seq.Max(r.End, ooo.ranges[j-1].End)}
		ooo.ranges[i] = n
		if j > i+1 {
			ooo.steps += uint64(len(ooo.ranges) - j)
			ooo.ranges = append(ooo.ranges[:i+1], ooo.ranges[j:]...)
		}
		ooo.addBytes(n.Len() - old)
	}
	ooo.touch(r.Start)
}

func (ooo *outOfOrder) addBytes(n int) {
	ooo.bytes += n
	ooo.high = max(ooo.high, ooo.bytes)
}

// touch makes s the first entry of recent. It replaces the previous first one if both are in the same range.
func (ooo *outOfOrder) touch(s seq.Num) {
	n := min(ooo.nRecent+1, len(ooo.recent))
	if ooo.nRecent > 0 && ooo.ranges[ooo.after(s)].Contains(ooo.recent[0]) {
		n = ooo.nRecent
	} else {
		copy(ooo.recent[1:n], ooo.recent[:n-1])
	}
	ooo.recent[0], ooo.nRecent = s, n
}

// removeUpTo removes the ranges that begin at or before left, and returns the end of the bytes that follow left without
// a gap.
func (ooo *outOfOrder) removeUpTo(left seq.Num) seq.Num {
	k := 0
	for k < len(ooo.ranges) && ooo.ranges[k].Start.LessEq(left) {
		left = seq.Max(left, ooo.ranges[k].End)
		ooo.bytes -= ooo.ranges[k].Len()
		k++
	}
	if k > 0 {
		ooo.steps += uint64(len(ooo.ranges))
		ooo.ranges = ooo.ranges[:copy(ooo.ranges, ooo.ranges[k:])]
	}
	if len(ooo.ranges) == 0 {
		ooo.nRecent = 0
	}
	return left
}

// gaps appends to o the parts of r that are not in the set. It stops at a part that would add a range to a set of limit
// ranges: one that touches no range and does not begin at left. refused reports that, or that o is full.
func (ooo *outOfOrder) gaps(r seq.Range, left seq.Num, limit int, o *Offer) (refused bool) {
	i := ooo.after(r.Start)
	for at := r.Start; at.Less(r.End); i++ {
		g := seq.Range{Start: at, End: r.End}
		if i < len(ooo.ranges) {
			g.End = seq.Min(g.End, ooo.ranges[i].Start)
			at = ooo.ranges[i].End
		} else {
			at = r.End
		}
		ooo.steps++
		if g.Empty() {
			continue
		}
		if o.N == len(o.R) || len(ooo.ranges) >= limit && g.Start != left && !ooo.adjacent(g) {
			return true
		}
		o.R[o.N] = g
		o.N++
	}
	return false
}

func (ooo *outOfOrder) adjacent(r seq.Range) bool {
	i, j := ooo.touching(r)
	return i < j
}

// duplicate returns the first part of r that is in the set, and the range that contains it. Both are empty if there is
// none.
func (ooo *outOfOrder) duplicate(r seq.Range) (dup, in seq.Range) {
	if i := ooo.after(r.Start); i < len(ooo.ranges) && ooo.ranges[i].Overlaps(r) {
		return r.Clip(ooo.ranges[i]), ooo.ranges[i]
	}
	return seq.Range{}, seq.Range{}
}

// blocks appends SACK blocks to the n blocks in b, most recent first, up to limit, and returns the new number of
// blocks.
func (ooo *outOfOrder) blocks(b *[4]seq.Range, n, limit int) int {
	add := func(r seq.Range) {
		for _, o := range b[:n] {
			if o == r {
				return
			}
		}
		b[n] = r
		n++
	}
	for _, s := range ooo.recent[:ooo.nRecent] {
		if i := ooo.after(s); n < limit && i < len(ooo.ranges) && ooo.ranges[i].Contains(s) {
			add(ooo.ranges[i])
		}
	}
	for i := 0; i < len(ooo.ranges) && n < limit; i++ {
		add(ooo.ranges[i])
	}
	return n
}
