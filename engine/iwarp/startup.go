package iwarp

import (
	"errors"
	"fmt"

	"xwarp/ddp"
	"xwarp/ddp/rdmap"
	"xwarp/mpa"
	"xwarp/mpa/startup"
	"xwarp/mpa/ulpdu"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// Errors of the start-up, as Handler.Closed gets them. They carry RDMA_CM's words.
var (
	ErrRejected = errors.New("RDMA_CM_EVENT_REJECTED: the peer's consumer rejected the connection")
	ErrStartup  = errors.New("RDMA_CM_EVENT_CONNECT_ERROR: MPA start-up failed")
	// the peer's TCP, or the network, said no
	ErrConnect  = errors.New("RDMA_CM_EVENT_CONNECT_ERROR: no TCP connection")
	ErrTimeout  = errors.New("RDMA_CM_EVENT_UNREACHABLE: MPA start-up timed out")
	ErrNotAsked = errors.New("session: no Request waits for an answer")
)

// startupFrames are the start-up frames sent and not yet acknowledged: at most a Request and an Rtr frame, or a Reply.
type startupFrames struct {
	frames []startupFrame
	frozen int // of frames
}

type startupFrame struct {
	b []byte
	r seq.Range
}

func (f *startupFrames) add(at seq.Num, b []byte) {
	if n := len(f.frames); n > 0 {
		at = f.frames[n-1].r.End
	}
	f.frames = append(f.frames, startupFrame{b, seq.Of(at, len(b))})
}

func (f *startupFrames) next() (n int, more bool) {
	if f.frozen == len(f.frames) {
		return 0, false
	}
	n = len(f.frames[f.frozen].b)
	f.frozen++
	return n, f.frozen < len(f.frames)
}

// fill writes the part of r that lies in start-up frames and returns its length.
func (f *startupFrames) fill(r seq.Range, dst []byte) int {
	n := 0
	for i := range f.frames {
		fr := &f.frames[i]
		if c := r.Clip(fr.r); !c.Empty() {
			n += copy(dst[c.Start.Diff(r.Start):][:c.Len()], fr.b[c.Start.Diff(fr.r.Start):])
		}
	}
	return n
}

func (f *startupFrames) acked(to seq.Num) {
	for f.frozen > 0 && f.frames[0].r.End.LessEq(to) {
		f.frames = f.frames[1:]
		f.frozen--
	}
}

func (f *startupFrames) empty() bool { return len(f.frames) == 0 }

func (f *startupFrames) unsent() bool { return f.frozen < len(f.frames) }

func (s *Session) stage() startup.Stage {
	if s.cfg.Responder {
		return s.rsp.Stage()
	}
	return s.ini.Stage()
}

// pullStartup takes the frames that the state machine wants to send.
func (s *Session) pullStartup() {
	out := s.ini.Output
	if s.cfg.Responder {
		out = s.rsp.Output
	}
	for b := out(); b != nil; b = out() {
		s.out.add(s.next, b)
		s.tr.Wake()
	}
}

// startup feeds in-order octets to the state machine, and what is behind its end to the Receiver.
func (s *Session) startup(at seq.Num, pieces [][]byte, n int) (kept int) {
	for i := 0; i < len(pieces) && kept < n && s.phase == phaseStartup; i++ {
		p := pieces[i][:min(len(pieces[i]), n-kept)]
		used, err := s.startupInput(p)
		kept += used
		if err != nil {
			s.refuse(at.Add(kept), err)
			return n
		}
		s.afterStartup(at.Add(kept))
		if used == len(p) {
			continue
		}
		switch s.phase {
		case phaseFull:
			rest, err := s.rcv.Offer(at.Add(kept), append([][]byte{p[used:]}, pieces[i+1:]...),
				n-kept)
			if err != nil {
				s.fail(err)
				return n
			}
			return kept + rest
		case phaseStartup:
			return kept // what is behind waits for the consumer's answer: TCP sends it again
		}
	}
	if s.phase == phaseEnding {
		return n
	}
	return kept
}

func (s *Session) startupInput(b []byte) (int, error) {
	if s.cfg.Responder {
		if s.rsp.Stage() == startup.StageDecide {
			return 0, nil
		}
		n, err := s.rsp.Input(b)
		if err != nil {
			return n, err
		}
		return n, nil
	}
	n, err := s.ini.Input(b)
	if err != nil {
		return n, err
	}
	return n, nil
}

// afterStartup acts on the stage that the state machine reached; left is the first octet that it did not take.
func (s *Session) afterStartup(left seq.Num) {
	s.pullStartup()
	switch s.stage() {
	case startup.StageDecide:
		if !s.asked {
			s.asked = true
			s.left = left
			s.cfg.Handler.Request(s, s.rsp.Request())
		}
	case startup.StageEstablished:
		s.begin(left)
	case startup.StageRejected:
		if !s.cfg.Responder {
			s.params = s.ini.Params()
			s.failStartup(ErrRejected)
		}
	case startup.StageFailed:
		s.failStartup(ErrStartup)
	}
}

// refuse ends a start-up that err broke: silently, behind a Reply of our version, or with the Terminate that
// RFC 6581 asks for as the only FPDU.
func (s *Session) refuse(left seq.Num, err error) {
	err = fmt.Errorf("%w: %w", ErrStartup, err)
	t := s.ini.Terminate()
	if s.cfg.Responder || t == nil {
		s.pullStartup() // a peer of another version gets a Reply that says so (RFC 5044, C.2.1)
		s.failStartup(err)
		return
	}
	s.note(err)
	if s.operate(left, t.Code) {
		s.fail(t)
		s.tr.Wake()
	}
}

// begin starts full operation: left is where the peer's first FPDU begins.
func (s *Session) begin(left seq.Num) {
	if !s.operate(left, mpa.CodeLocal) {
		return
	}
	s.told = true
	s.cfg.Handler.Established(s, s.params)
	s.tr.Wake()
}

// operate makes sender, receiver and queue pair ready. When the queue pair cannot start, the peer hears of it
// with a Terminate of MPA's code.
func (s *Session) operate(left seq.Num, code uint8) bool {
	p := s.ini.Params()
	if s.cfg.Responder {
		p = s.rsp.Params()
	}
	s.params = p
	if err := s.qp.Start(qpParams(p, s.cfg.Responder)); err != nil {
		s.note(fmt.Errorf("%w: %w", ErrStartup, err))
		s.sayFarewell(p, left, code)
		return false
	}
	s.frame(p, left, s.qp, s.qp)
	s.phase = phaseFull
	s.startAt = tick.Never
	s.waits = s.qp.State() == rdmap.RTR
	return true
}

// frame makes sender and receiver ready: left is where the peer's first FPDU begins.
func (s *Session) frame(p *startup.Params, left seq.Num, src mpa.Source, sink mpa.Sink) {
	first := s.next
	if n := len(s.out.frames); n > 0 {
		first = s.out.frames[n-1].r.End
	}
	s.snd.Init(mpa.SenderConfig{Framing: p.Send, Pack: s.cfg.Pack}, first, s.tr.EMSS(), src)
	s.rcv.Init(mpa.ReceiverConfig{
		Framing: p.Receive, AnyMarkerOrigin: p.Version == 0,
		Layered: s.cfg.Reliable, Strict: s.cfg.AnyCRCError, HoldLimit: s.cfg.Window,
		Pool: s.cfg.Pool,
	}, left, sink)
	s.full, s.left = true, left
}

func qpParams(p *startup.Params, responder bool) rdmap.Params {
	q := rdmap.Params{
		Version: ddp.Version(p.Version),
		Wait:    responder && !p.RtrFrame,
		IRD:     int(p.IRD), ORD: int(p.ORD),
	}
	if p.PeerToPeer {
		k := rtrKind(p.RTR)
		if responder {
			q.ExpectRTR = k
		} else {
			q.SendRTR = k
		}
	}
	return q
}

func rtrKind(r startup.RTR) rdmap.RTRKind {
	switch r {
	case startup.RTRSend:
		return rdmap.RTRSend
	case startup.RTRWrite:
		return rdmap.RTRWrite
	case startup.RTRRead:
		return rdmap.RTRRead
	}
	return rdmap.RTRNone
}

// failStartup ends a connection that never reached full operation.
func (s *Session) failStartup(err error) {
	s.note(err)
	s.phase = phaseEnding
	s.finish = true
	s.tr.Wake()
}

// startupRefused is startupClosed by the peer; asked says that it had the Request (RFC 6581, 10).
func (s *Session) startupRefused(why string, asked bool) {
	if begun := s.startAt != tick.Never; begun && asked && !s.cfg.Responder {
		s.noteStartup(s.ini.PeerClosed(why))
		return
	}
	s.startupClosed(why)
}

func (s *Session) startupClosed(why string) {
	closed := s.ini.Closed
	if s.cfg.Responder {
		closed = s.rsp.Closed
	}
	s.noteStartup(closed(why))
}

func (s *Session) noteStartup(e *ulpdu.Error) {
	if e != nil {
		s.note(fmt.Errorf("%w: %w", ErrStartup, e))
	}
}

// Accept answers the Request that Handler.Request showed; qp becomes the connection's queue pair.
func (s *Session) Accept(qp *rdmap.QP, a startup.Answer) error {
	if s.phase != phaseStartup || s.stage() != startup.StageDecide {
		return ErrNotAsked
	}
	if err := s.rsp.Accept(a); err != nil {
		return err
	}
	s.qp = qp
	s.afterStartup(s.left)
	return nil
}

// Reject answers the Request with no; the connection closes after the Reply.
func (s *Session) Reject(a startup.Answer) error {
	if s.phase != phaseStartup || s.stage() != startup.StageDecide {
		return ErrNotAsked
	}
	if err := s.rsp.Reject(a); err != nil {
		return err
	}
	s.pullStartup()
	s.phase = phaseEnding
	s.finish = true
	s.tr.Wake()
	return nil
}
