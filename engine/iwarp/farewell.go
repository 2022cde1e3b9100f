package iwarp

import (
	"xwarp/ddp"
	"xwarp/ddp/rdmap"
	"xwarp/mpa/startup"
	"xwarp/mpa/ulpdu"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// farewell is what MPA serves when the queue pair cannot: a stream of one Terminate (RFC 6581, 9.3). A
// responder says it behind the peer's first FPDU, because it may send none before (RFC 5044, 7.1.2, rule 4).
type farewell struct {
	terminate []byte // ULPDU
	wait      bool   // for the first FPDU
	said      bool
}

// NextULPDU implements mpa.Source.
func (f *farewell) NextULPDU(int) (ref ulpdu.Ref, n int) {
	if f.wait || f.said {
		return ref, 0
	}
	f.said = true
	return ref, len(f.terminate)
}

// ULPDUWaiting implements mpa.Source.
func (f *farewell) ULPDUWaiting() bool { return !f.wait && !f.said }

// ReadULPDU implements mpa.Source.
func (f *farewell) ReadULPDU(_ ulpdu.Ref, dst []byte) (int, []byte) {
	return copy(dst, f.terminate), nil
}

// ReleaseULPDU implements mpa.Source.
func (f *farewell) ReleaseULPDU(ulpdu.Ref) {}

// Place implements mpa.Sink: what the peer sends counts for its being there.
func (f *farewell) Place(*ulpdu.View, bool) *ulpdu.Error {
	f.wait = false
	return nil
}

// Silent implements mpa.Sink.
func (f *farewell) Silent([]byte, int) bool { return false }

// Deliver implements mpa.Sink.
func (f *farewell) Deliver([]byte, int) *ulpdu.Error { return nil }

// sayFarewell ends a start-up that failed here: with a Terminate of MPA's code when the peer knows RFC 6581.
// The caller has noted why.
func (s *Session) sayFarewell(p *startup.Params, left seq.Num, code uint8) {
	if p.Revision != startup.RevEnhanced {
		s.failStartup(s.err)
		return
	}
	t := rdmap.Terminate{Cause: ddp.MakeCause(ulpdu.MPA, 0, code)}
	s.last = &farewell{terminate: rdmap.AppendTerminateULPDU(nil, &t, ddp.Version(p.Version)),
		wait: s.cfg.Responder}
	s.frame(p, left, s.last, s.last)
	s.phase = phaseFarewell
	s.hearFarewell(nil)
}

// hearFarewell goes on with a farewell after octets arrived: err is what the Receiver said of them.
func (s *Session) hearFarewell(err *ulpdu.Error) {
	if err == nil && s.last.wait {
		return
	}
	s.startAt = tick.Never
	s.failStartup(s.err)
}
