package tcp_test

import (
	"math/rand/v2"

	"xwarp/tcp/seq"
)

// recordSource cuts a stream into records, like an MPA sender that aligns FPDUs with segments. No segment may split a
// record.
type recordSource struct {
	h    *host
	rng  *rand.Rand
	next int // size of the next record, 0: not chosen yet
	ends map[seq.Num]bool
}

func (s *recordSource) Next(room int) (int, bool) {
	w := s.h.snd.Waiting()
	if w == 0 {
		return 0, false
	}
	if s.next == 0 {
		s.next = min(w, 1+s.rng.IntN(s.h.c.EMSS()))
	}
	if s.next > room {
		return 0, true
	}
	n, more := s.h.snd.Next(s.next)
	s.ends[s.h.snd.Pending().Start] = true
	s.next = 0
	return n, more
}
