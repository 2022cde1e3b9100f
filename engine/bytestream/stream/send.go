package stream

import "xwarp/tcp/seq"

// Send is the send buffer of a connection; it is its tcp.Source.
//
//	una             next             end
//	 |---------------|----------------|
//	 | given to TCP  | waits          |
type Send struct {
	ring
	una, next, end seq.Num
	emss           int
	nagle          bool
	closed         bool
}

// Init empties s. Its first byte has number start; it begins with size bytes of memory and takes at most limit.
func (s *Send) Init(start seq.Num, size, limit int) {
	r := s.ring
	r.init(size, limit)
	*s = Send{ring: r, una: start, next: start, end: start, emss: 1}
}

// SetEMSS tells what a full-sized segment is: Nagle's algorithm needs it.
func (s *Send) SetEMSS(n int) { s.emss = max(n, 1) }

// SetNagle turns Nagle's algorithm (RFC 9293, 3.7.4) on or off; it is off at first.
func (s *Send) SetNagle(on bool) { s.nagle = on }

// Close says that nothing more will be written, so that the rest is sent at once.
func (s *Send) Close() { s.closed = true }

// Free returns how many bytes Write takes now.
func (s *Send) Free() int { return s.max - s.end.Diff(s.una) }

// Waiting returns the bytes that TCP has not asked for; Unacked those that the peer has not acknowledged, sent or not.
func (s *Send) Waiting() int { return s.end.Diff(s.next) }
func (s *Send) Unacked() int { return s.end.Diff(s.una) }

// Write appends as much of p as there is room for and returns how much that was; nothing after Close.
func (s *Send) Write(p []byte) int {
	if s.closed {
		return 0
	}
	n := min(len(p), s.Free())
	used := s.Unacked()
	s.hold(s.una, used, used+n)
	s.write(s.end, p[:n])
	s.end = s.end.Add(n)
	return n
}

// Next implements tcp.Source. A piece smaller than a segment is held back while bytes are in flight, with
// Nagle's algorithm on, and while more waits than room lets through and room is less than a segment.
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

// Acked releases the bytes before to. A number outside of what was sent, as the one after FIN, is taken as
// its nearer end.
func (s *Send) Acked(to seq.Num) {
	if s.una.Less(to) {
		s.una = seq.Min(to, s.next)
	}
}

// Pending returns the bytes that wait, for a move of the stream to another sender (RFC 5044, 7.1.5).
func (s *Send) Pending() seq.Range { return seq.Range{Start: s.next, End: s.end} }
