package tcp

import "xwarp/tcp/seq"

// held is the set of octets kept beyond RCV.NXT: disjoint ranges in order, no two of them adjacent. The
// number of ranges is bounded by Config.MaxHoles, a search halves it, an insertion moves at most all of it.
type held struct {
	v []seq.Range
	// recent is where the last octets were kept, newest first: the order of SACK blocks (RFC 2018, 4).
	recent  [4]seq.Num
	nRecent int
	// high is the most octets ever held.
	octets, high int
	steps        uint64 // comparisons and moved ranges, for the cost test
}

func (h *held) reset() { *h = held{v: h.v[:0]} }

// drop empties the set.
func (h *held) drop() { h.v, h.octets, h.nRecent = h.v[:0], 0, 0 }

func (h *held) empty() bool { return len(h.v) == 0 }

// end returns the end of the last range of a set that is not empty.
func (h *held) end() seq.Num { return h.v[len(h.v)-1].End }

// after returns the index of the first range that ends after s.
func (h *held) after(s seq.Num) int {
	lo, hi := 0, len(h.v)
	for lo < hi {
		m := int(uint(lo+hi) / 2)
		if s.Less(h.v[m].End) {
			hi = m
		} else {
			lo = m + 1
		}
		h.steps++
	}
	return lo
}

// touching returns the ranges [i, j) that overlap r or are adjacent to it.
func (h *held) touching(r seq.Range) (i, j int) {
	i = h.after(r.Start - 1)
	for j = i; j < len(h.v) && h.v[j].Start.LessEq(r.End); j++ {
		h.steps++
	}
	return i, j
}

// add puts r, not empty, into the set.
func (h *held) add(r seq.Range) {
	i, j := h.touching(r)
	if i == j {
		h.v = append(h.v, seq.Range{})
		copy(h.v[i+1:], h.v[i:])
		h.steps += uint64(len(h.v) - i)
		h.v[i] = r
		h.grew(r.Len())
	} else {
		old := 0
		for _, o := range h.v[i:j] {
			old += o.Len()
		}
		n := seq.Range{Start: seq.Min(r.Start, h.v[i].Start), End: seq.Max(r.End, h.v[j-1].End)}
		h.v[i] = n
		if j > i+1 {
			h.steps += uint64(len(h.v) - j)
			h.v = append(h.v[:i+1], h.v[j:]...)
		}
		h.grew(n.Len() - old)
	}
	h.note(r.Start)
}

func (h *held) grew(n int) {
	h.octets += n
	h.high = max(h.high, h.octets)
}

// note makes s the most recent entry.
func (h *held) note(s seq.Num) {
	n := min(h.nRecent+1, len(h.recent))
	if h.nRecent > 0 && h.v[h.after(s)].Contains(h.recent[0]) {
		n = h.nRecent
	} else {
		copy(h.recent[1:n], h.recent[:n-1])
	}
	h.recent[0], h.nRecent = s, n
}

// take removes what begins at or before left, and returns how far the octets reach without a gap.
func (h *held) take(left seq.Num) seq.Num {
	k := 0
	for k < len(h.v) && h.v[k].Start.LessEq(left) {
		left = seq.Max(left, h.v[k].End)
		h.octets -= h.v[k].Len()
		k++
	}
	if k > 0 {
		h.steps += uint64(len(h.v))
		h.v = h.v[:copy(h.v, h.v[k:])]
	}
	if len(h.v) == 0 {
		h.nRecent = 0
	}
	return left
}

// gaps appends to o the parts of r that are not in the set. A part that touches no range and does not begin at left is
// left out once the set has limit ranges; refused reports that, or that o is full.
func (h *held) gaps(r seq.Range, left seq.Num, limit int, o *Offer) (refused bool) {
	i := h.after(r.Start)
	for at := r.Start; at.Less(r.End); i++ {
		g := seq.Range{Start: at, End: r.End}
		if i < len(h.v) {
			g.End = seq.Min(g.End, h.v[i].Start)
			at = h.v[i].End
		} else {
			at = r.End
		}
		h.steps++
		if g.Empty() {
			continue
		}
		if o.N == len(o.R) || len(h.v) >= limit && g.Start != left && !h.adjacent(g) {
			return true
		}
		o.R[o.N] = g
		o.N++
	}
	return false
}

func (h *held) adjacent(r seq.Range) bool {
	i, j := h.touching(r)
	return i < j
}

// duplicate returns the first part of r that is in the set, and the range it lies in.
func (h *held) duplicate(r seq.Range) (dup, in seq.Range) {
	if i := h.after(r.Start); i < len(h.v) && h.v[i].Overlaps(r) {
		return r.Clip(h.v[i]), h.v[i]
	}
	return seq.Range{}, seq.Range{}
}

// blocks writes SACK blocks to b after the first n, most recent first, and returns how many there are then.
func (h *held) blocks(b *[4]seq.Range, n, limit int) int {
	add := func(r seq.Range) {
		for _, o := range b[:n] {
			if o == r {
				return
			}
		}
		b[n] = r
		n++
	}
	for _, s := range h.recent[:h.nRecent] {
		if i := h.after(s); n < limit && i < len(h.v) && h.v[i].Contains(s) {
			add(h.v[i])
		}
	}
	for i := 0; i < len(h.v) && n < limit; i++ {
		add(h.v[i])
	}
	return n
}
