package overtcp

import (
	"testing"

	"xwarp/tcp/seq"
)

// strict is a Prior that has only the bytes before end. It fails the test if it is asked for others.
type strict struct {
	t   *testing.T
	end seq.Num
	got int
}

func (s *strict) Next(int) (int, bool) { return 0, false }
func (s *strict) Acked(seq.Num)        {}

func (s *strict) Fill(r seq.Range, dst []byte) (uint64, bool) {
	if s.end.Less(r.End) || len(dst) != r.Len() {
		s.t.Errorf("asked for %v and %d bytes, has those before %d", r, len(dst), s.end)
	}
	s.got += r.Len()
	return 0, false
}

// TestFillAcrossStart: Fill of a range with the end of the byte stream and the start of MPA asks the Prior only for the
// bytes of the byte stream. Fill of a later range does not ask it. While there is a Prior, NextRun takes no run, and
// reports that more data is due.
func TestFillAcrossStart(t *testing.T) {
	p := &strict{t: t, end: 1000}
	o := delayed{Conn: &Conn{}, prior: p, first: 1000}
	o.Fill(seq.Of(900, 300), make([]byte, 300))
	o.Fill(seq.Of(1000, 300), make([]byte, 300))
	if n, more := o.NextRun(1448, 10); p.got != 100 || n > 0 || !more {
		t.Errorf("%d bytes of the stream, want 100; then a run of %d, more %v", p.got, n, more)
	}
}
