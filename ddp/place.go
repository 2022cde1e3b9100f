package ddp

import "xwarp/mpa/ulpdu"

// PlaceTagged checks a segment of an RDMA Write for a stream of domain pd (RFC 5041, 7.1) and copies its payload. A
// segment without payload is not checked (5.2). c is the cache of this stream alone.
func (t *Table) PlaceTagged(c *LookupCache, pd *PD, stream StreamID, h Tagged,
	v *ulpdu.View) Cause {
	n := v.Len() - TaggedLen
	if n <= 0 {
		return CauseNone
	}
	if !t.Unchanged(c, h.STag) {
		m, dst, f := t.Find(pd, stream, h.STag, h.TO, n, RemoteWrite)
		if f != OK {
			return TaggedCause(f)
		}
		*c = LookupCache{m, h.STag, t.revocations}
		v.CopyTo(dst, TaggedLen)
		return CauseNone
	}
	dst, f := c.mr.bytesAt(h.TO, n)
	if f != OK {
		return TaggedCause(f)
	}
	v.CopyTo(dst, TaggedLen)
	return CauseNone
}

// BufferIndex returns which of n waiting buffers is for message msn, if the first of them is for message next. It
// returns CauseMSNRange for a message that was complete before, and CauseNoBuffer for one without a buffer (RFC 5041,
// 7.1, checks 2 and 5 of untagged segments).
func BufferIndex(msn, next MSN, n int) (int, Cause) {
	d := int32(msn - next)
	if d < 0 {
		return 0, CauseMSNRange
	}
	if int(d) >= n {
		return 0, CauseNoBuffer
	}
	return int(d), CauseNone
}

// CheckUntagged checks whether n bytes at message offset mo fit a buffer of size bytes (RFC 5041, 7.1, checks 3 and 4
// of untagged segments). Bytes of the buffer at MaxMessage and beyond do not count.
func CheckUntagged(mo MO, n int, size uint64) Cause {
	size = min(size, MaxMessage)
	if uint64(mo) > size {
		return CauseMO
	}
	if uint64(n) > size-uint64(mo) {
		return CauseTooLong
	}
	return CauseNone
}

// Scatter copies the bytes of v from offset off on to the pieces, from offset at of the pieces on. The caller has
// checked that they fit.
func Scatter(pieces [][]byte, at uint64, v *ulpdu.View, off int) {
	for _, p := range pieces {
		if off >= v.Len() {
			return
		}
		if at >= uint64(len(p)) {
			at -= uint64(len(p))
			continue
		}
		off += v.CopyTo(p[at:], off)
		at = 0
	}
}

// Gather fills dst with the bytes of the pieces from offset at on, and returns how many there were.
func Gather(dst []byte, pieces [][]byte, at uint64) int {
	n := 0
	for _, p := range pieces {
		if n == len(dst) {
			break
		}
		if at >= uint64(len(p)) {
			at -= uint64(len(p))
			continue
		}
		n += copy(dst[n:], p[at:])
		at = 0
	}
	return n
}
