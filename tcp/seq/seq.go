// Package seq is arithmetic on TCP's 32-bit sequence numbers (RFC 9293, 3.4), which wrap around.
package seq

// Num is a TCP sequence number. Comparisons are right for numbers less than 2^31 apart.
type Num uint32

// Add returns the number n bytes after s; n may be negative.
func (s Num) Add(n int) Num { return s + Num(uint32(n)) }

// Diff returns how many bytes s lies after o, negative when before it.
func (s Num) Diff(o Num) int { return int(int32(s - o)) }

// Less reports whether s comes before o.
func (s Num) Less(o Num) bool { return int32(s-o) < 0 }

// LessEq reports whether s comes before o or equals it.
func (s Num) LessEq(o Num) bool { return int32(s-o) <= 0 }

// In reports whether s lies in the size bytes that begin at lo; size is at most 2^31.
func (s Num) In(lo Num, size int) bool { return uint32(s-lo) < uint32(size) }

// Max returns the later of a and b.
func Max(a, b Num) Num {
	if a.Less(b) {
		return b
	}
	return a
}

// Min returns the earlier of a and b.
func Min(a, b Num) Num {
	if b.Less(a) {
		return b
	}
	return a
}

// Range is the sequence numbers from Start up to but not including End. It is empty if End equals or precedes Start.
type Range struct{ Start, End Num }

// Of returns the range of n bytes that begins at start.
func Of(start Num, n int) Range { return Range{start, start.Add(n)} }

// Len returns the number of bytes in r, 0 for an inverted range.
func (r Range) Len() int { return max(0, r.End.Diff(r.Start)) }

// Empty reports whether r holds no byte.
func (r Range) Empty() bool { return r.End.LessEq(r.Start) }

// Contains reports whether s is one of r's bytes.
func (r Range) Contains(s Num) bool { return r.Start.LessEq(s) && s.Less(r.End) }

// Covers reports whether every byte of o is in r.
func (r Range) Covers(o Range) bool { return r.Start.LessEq(o.Start) && o.End.LessEq(r.End) }

// Overlaps reports whether r and o share a byte.
func (r Range) Overlaps(o Range) bool { return r.Start.Less(o.End) && o.Start.Less(r.End) }

// Clip returns the part of r that lies in o. It is empty if r and o do not overlap.
func (r Range) Clip(o Range) Range {
	c := Range{Max(r.Start, o.Start), Min(r.End, o.End)}
	if c.Empty() {
		c.End = c.Start
	}
	return c
}
