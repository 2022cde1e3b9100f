// Package stream holds the bytes of a plain byte stream for a tcp.Conn: those written and not acknowledged, and those
// received and not read. Both buffers are rings that grow up to a limit.
package stream

import "xwarp/tcp/seq"

// Limits of the size of a ring in bytes. Init rounds smaller sizes up to minRing.
const (
	minRing = 1 << 12
	maxRing = 1 << 30 // the largest window of RFC 7323
)

// ring is a buffer that stores byte number s at s modulo its size, a power of two.
type ring struct {
	b   []byte
	max int
}

// init sets the size to at least size, and the limit to max, both rounded up to powers of two. It reuses a buffer that
// is large enough.
func (r *ring) init(size, limit int) {
	r.max = roundUp(limit)
	size = min(roundUp(size), r.max)
	if len(r.b) < size || len(r.b) > r.max {
		r.b = make([]byte, size)
	}
}

func roundUp(n int) int {
	p := minRing
	for p < n && p < maxRing {
		p *= 2
	}
	return p
}

// hold makes the ring large enough for n bytes from base on. It keeps the first used of them.
func (r *ring) hold(base seq.Num, used, n int) {
	if n <= len(r.b) {
		return
	}
	bigger := ring{b: make([]byte, min(roundUp(n), r.max)), max: r.max}
	used = min(used, len(r.b))
	for done := 0; done < used; {
		at := base.Add(done)
		p := r.at(at, used-done)
		bigger.write(at, p)
		done += len(p)
	}
	r.b = bigger.b
}

// at returns up to n bytes at s, fewer where the ring wraps. They alias the ring.
func (r *ring) at(s seq.Num, n int) []byte {
	i := int(uint32(s) & uint32(len(r.b)-1))
	return r.b[i:min(i+n, len(r.b))]
}

func (r *ring) write(s seq.Num, p []byte) {
	n := copy(r.at(s, len(p)), p)
	copy(r.at(s.Add(n), len(p)-n), p[n:])
}

func (r *ring) read(s seq.Num, p []byte) {
	n := copy(p, r.at(s, len(p)))
	copy(p[n:], r.at(s.Add(n), len(p)-n))
}
