package stream

import "xwarp/tcp/seq"

// Send is the send buffer of a connection; it is its tcp.Source.
//
//	una             next             end
//	 |---------------|----------------|
//	 | passed to TCP | waiting        |
type Send struct {
	ring
	una, next, end seq.Num
	emss           int
	nagle          bool
	closed         bool
}

// Init empties s. Its first byte has number start. It starts with size bytes of memory and holds at most limit.
func (s *Send) Init(start seq.Num, size, limit int) {
	r := s.ring
	r.init(size, limit)
	*s = Send{ring: r, una: start, next: start, end: start, emss: 1}
}

// SetEMSS sets the size of a full-sized segment, for Nagle's algorithm.
func (s *Send) SetEMSS(n int) { s.emss = max(n, 1) }

// SetNagle turns Nagle's algorithm (RFC 9293, 3.7.4) on or off. It is off by default.
func (s *Send) SetNagle(on bool) { s.nagle = on }

// Close ends writing. From then on Nagle's algorithm does not hold back the remaining bytes.
func (s *Send) Close() { s.closed = true }

// Free returns how many bytes Write accepts now, unless s is closed.
func (s *Send) Free() int { return s.max - s.end.Diff(s.una) }

// Waiting returns the number of bytes not yet passed to TCP. Buffered returns the number of all bytes in s, which the
// peer has not acknowledged.
func (s *Send) Waiting() int  { return s.end.Diff(s.next) }
func (s *Send) Buffered() int { return s.end.Diff(s.una) }

// Write appends as many bytes of p as fit and returns their number; 0 after Close.
func (s *Send) Write(p []byte) int {
	if s.closed {
		return 0
	}
	n := min(len(p), s.Free())
	used := s.Buffered()
	s.hold(s.una, used, used+n)
	s.write(s.end, p[:n])
	s.end = s.end.Add(n)
	return n
}

// Next implements tcp.Source. It holds back a piece smaller than a segment in two cases: with Nagle's algorithm, while
// bytes are in flight and Close was not called; and while room is less than a segment and less than the bytes that
// wait.
func (s *Send) Next(room int) (n int, more bool) {
	w := s.Waiting()
	n = min(w, room)
	if n < w && room < s.emss {
		return 0, true // sender's silly window avoidance (RFC 9293, 3.8.6.2.1)
	}
	if s.nagle && !s.closed && n < s.emss && s.una != s.next {
		return 0, w > 0
	}
	s.next = s.next.Add(n)
	return n, n < w
}

// Fill writes the bytes of r, all of them given by Next and not acknowledged, to dst.
func (s *Send) Fill(r seq.Range, dst []byte) { s.read(r.Start, dst[:r.Len()]) }

// Acked releases the bytes before to. A number outside the sent bytes, such as the one after FIN, is clamped to them.
func (s *Send) Acked(to seq.Num) {
	if s.una.Less(to) {
		s.una = seq.Min(to, s.next)
	}
}

// Pending returns the waiting bytes, to move the stream to another sender (RFC 5044, 7.1.5).
func (s *Send) Pending() seq.Range { return seq.Range{Start: s.next, End: s.end} }
