package stream

import "xwarp/tcp/seq"

// Recv is the receive buffer of a connection.
//
//	base            ready              base+max
//	 |----------------|---------------------|
//	 | Read returns   | bytes beyond gaps  |
type Recv struct {
	ring
	base, ready seq.Num
	high        seq.Num // sequence number after the last byte that Put stored
}

// Init empties r. Its first byte has number start. It starts with size bytes of memory and holds at most limit.
func (r *Recv) Init(start seq.Num, size, limit int) {
	g := r.ring
	g.init(size, limit)
	*r = Recv{ring: g, base: start, ready: start, high: start}
}

// SetLimit changes the maximum number of bytes in r, never below its allocated memory.
func (r *Recv) SetLimit(limit int) { r.max = max(roundUp(limit), len(r.b)) }

// Put stores the bytes of p, in order or not; the first has number at. It returns how many of them fit, counted from
// the first.
func (r *Recv) Put(at seq.Num, p []byte) int {
	off := at.Diff(r.base)
	if off < 0 || off >= r.max {
		return 0
	}
	n := min(len(p), r.max-off)
	r.hold(r.base, r.high.Diff(r.base), off+n)
	r.write(at, p[:n])
	r.high = seq.Max(r.high, at.Add(n))
	return n
}

// Advance makes the bytes before to readable. to is RCV.NXT, without the peer's FIN.
func (r *Recv) Advance(to seq.Num) {
	if r.ready.Less(to) {
		r.ready = seq.Min(to, r.high)
	}
}

// Ready returns how many bytes Read would return.
func (r *Recv) Ready() int { return r.ready.Diff(r.base) }

// Space returns how many bytes beyond RCV.NXT fit, for tcp.Conn.SetRcvSpace.
func (r *Recv) Space() int { return r.max - r.Ready() }

// Read moves bytes to p and returns their number.
func (r *Recv) Read(p []byte) int {
	n := min(len(p), r.Ready())
	r.read(r.base, p[:n])
	r.base = r.base.Add(n)
	return n
}

// Next returns the sequence number of the first byte that Read returns.
func (r *Recv) Next() seq.Num { return r.base }
