package iwarp

import "xwarp/tcp/seq"

// guardFill is deferred by Fill. When registered memory cannot be accessed, the stream ends with a Terminate.
// The octets r, which have their place in the stream before it, are written blank if the peer has seen
// nothing of them; what it may have seen the rest of cannot be made up, and the connection breaks.
func (s *Session) guardFill(r seq.Range, n int, dst []byte) {
	v := recover()
	if v == nil {
		return
	}
	err := s.qp.Fault(v)
	if err == nil {
		panic(v)
	}
	s.fail(err)
	if r.Start.Less(s.filled) {
		s.tr.Break()
		return
	}
	if !s.cut {
		s.cut, s.cutAt = true, r.Start
	}
	s.qp.Blank(true)
	s.snd.FillSum(seq.Range{Start: r.Start.Add(n), End: r.End}, dst[n:])
	s.filled = r.End
}

// Abandon ends the session after a panic in it or below: it tells what it can, and the handler in any case.
// It is the last call.
func (s *Session) Abandon(why error) {
	if s.phase == phaseClosed {
		return
	}
	s.note(why)
	defer func() {
		if recover() != nil {
			s.phase = phaseClosed
			s.cfg.Handler.Closed(s, s.err)
		}
	}()
	s.Ended(why)
}
