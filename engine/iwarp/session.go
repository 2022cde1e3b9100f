// Package iwarp is one iWARP connection between TCP and the verbs: MPA's start-up, then framing, placement and
// the queue pair. It has no clock and no I/O; a Transport carries its octets: the engine's own TCP, which may
// offer them out of order, or a kernel socket, which never does.
package iwarp

import (
	"fmt"

	"xwarp/ddp/rdmap"
	"xwarp/mpa"
	"xwarp/mpa/startup"
	"xwarp/mpa/ulpdu"
	"xwarp/tcp"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// Transport is the connection below. Its methods are called on the thread that calls the Session.
type Transport interface {
	Wake()                  // the Session has something to send
	Shutdown(now tick.Time) // FIN once Next has nothing left
	Abort(now tick.Time)    // RST
	EMSS() int              // octets of payload that one segment carries
	// Break says, from within Fill, that the octets asked for cannot be had: they must not be sent, and the
	// connection ends.
	Break()
}

// Handler hears what happens to a Session, on the thread that calls it. Closed is the last call.
type Handler interface {
	// Request shows the peer's MPA Request to the responder's consumer, who answers now or later with Accept or Reject.
	Request(s *Session, r *startup.Request)
	// Established says that the queue pair may be used.
	Established(s *Session, p *startup.Params)
	// Disconnected says that the queue pair left RTS; what was posted has been completed or flushed.
	Disconnected(s *Session, err error)
	// Closed says that the connection is gone. err is nil after a graceful close.
	Closed(s *Session, err error)
}

// Config is what a Session is made of.
type Config struct {
	Responder bool
	Startup   startup.Config
	QP        *rdmap.QP // an initiator's; a responder gives it to Accept
	Pool      *mpa.HoldPool
	Handler   Handler
	Pack      bool // several small FPDUs share a segment
	// Reliable says that the transport cannot send again what MPA refused: the first CRC failure is an error.
	// AnyCRCError asks for the same where it could.
	Reliable, AnyCRCError bool
	// Window is the most octets that may be under way towards us [DefaultWindow].
	Window int
	// StartupTimeout bounds the MPA exchange from the first octet [10 s], CloseTimeout a Terminate or FIN
	// exchange [5 s].
	StartupTimeout, CloseTimeout tick.Duration
	// FirstFPDUTimeout is how long a responder, which is silent until then, waits for an FPDU of an initiator
	// whose consumer sends first [5 min]; negative: for ever. An RTR message, which MPA sends, is due within
	// StartupTimeout.
	FirstFPDUTimeout tick.Duration
}

type phase uint8

const (
	phaseStartup  phase = iota
	phaseFull           // FPDUs both ways
	phaseFarewell       // a responder that failed here waits for the first FPDU, to answer it with a Terminate
	phaseEnding         // an error or a reject: nothing that arrives counts
	phaseClosed
)

// Session is one connection. The zero value is not usable before Init.
type Session struct {
	cfg   Config
	tr    Transport
	phase phase

	ini startup.Initiator
	rsp startup.Responder
	out startupFrames

	snd    mpa.Sender
	rcv    mpa.Receiver
	qp     *rdmap.QP
	params *startup.Params
	last   *farewell // instead of a queue pair that cannot start
	full   bool      // snd is in use
	next   seq.Num   // of the next octet that Next will freeze
	left   seq.Num   // everything before it has arrived
	filled seq.Num   // Fill wrote everything before it
	cut    bool      // from cutAt on, the octets are blank
	cutAt  seq.Num

	asked    bool // the consumer was shown the Request
	told     bool // Established was called
	downTold bool
	finish   bool // FIN as soon as the last start-up frame left
	err      error

	waits   bool      // startAt is to be set for the initiator's first FPDU
	ignored uint64    // octets that came after the end
	startAt tick.Time // start-up must be over, or the initiator's first FPDU be there
	closeAt tick.Time
}

// Init makes s ready for a transport. The error names what is wrong with cfg.
func (s *Session) Init(cfg Config) error {
	if cfg.Window == 0 {
		cfg.Window = DefaultWindow
	}
	if cfg.StartupTimeout == 0 {
		cfg.StartupTimeout = DefaultStartupTimeout
	}
	if cfg.FirstFPDUTimeout == 0 {
		cfg.FirstFPDUTimeout = DefaultFirstFPDUTimeout
	}
	if cfg.CloseTimeout == 0 {
		cfg.CloseTimeout = DefaultCloseTimeout
	}
	if cfg.Pool == nil || cfg.Handler == nil || (cfg.QP == nil && !cfg.Responder) {
		return fmt.Errorf("session: pool, handler or queue pair is missing")
	}
	*s = Session{cfg: cfg, qp: cfg.QP, startAt: tick.Never, closeAt: tick.Never}
	if cfg.Responder {
		return s.rsp.Init(cfg.Startup)
	}
	return s.ini.Init(cfg.Startup)
}

// Begin gives s its transport and where both streams are: the next octet that it sends and the next that arrives.
func (s *Session) Begin(tr Transport, snd, rcv seq.Num, now tick.Time) {
	s.tr, s.next, s.left, s.filled = tr, snd, rcv, snd
	s.startAt = now.Add(s.cfg.StartupTimeout)
	s.pullStartup()
}

// Handler returns who hears of s.
func (s *Session) Handler() Handler { return s.cfg.Handler }

// QP returns the queue pair; nil before a responder accepted.
func (s *Session) QP() *rdmap.QP { return s.qp }

// Params returns what MPA agreed on, nil before.
func (s *Session) Params() *startup.Params { return s.params }

// Stats returns the receiver's counters.
func (s *Session) Stats() mpa.ReceiverStats {
	n := s.rcv.Stats()
	n.AfterEnd += s.ignored
	return n
}

// Established reports whether FPDUs flow.
func (s *Session) Established() bool { return s.phase == phaseFull }

// Over reports whether the connection is gone: Handler.Closed was called.
func (s *Session) Over() bool { return s.phase == phaseClosed }

// Err returns what ended the session, nil for nothing or a graceful close.
func (s *Session) Err() error { return s.err }

// PeerRequest returns the peer's Request once it is complete, nil before.
func (s *Session) PeerRequest() *startup.Request { return s.rsp.Request() }

// Retry returns what an initiator should try on another connection after Closed.
func (s *Session) Retry() startup.Retry { return s.ini.Retry() }

// Next is tcp.Source: start-up frames one by one, then FPDUs.
func (s *Session) Next(room int) (n int, more bool) {
	if s.phase == phaseClosed {
		return 0, false
	}
	if n, more := s.out.next(); n > 0 {
		s.next = s.next.Add(n)
		return n, more || s.full
	}
	if !s.full {
		return 0, false
	}
	n, more = s.snd.Next(room)
	s.next = s.next.Add(n)
	return n, more
}

// Fill writes the octets r of the outgoing stream; see stack.Upper.
func (s *Session) Fill(r seq.Range, dst []byte) (sum uint64, summed bool) {
	n := s.out.fill(r, dst)
	if n < r.Len() && s.full {
		defer s.guardFill(r, n, dst)
		if s.cut {
			s.qp.Blank(s.cutAt.LessEq(r.Start))
		}
		sum, summed, _ = s.snd.FillSum(seq.Range{Start: r.Start.Add(n), End: r.End}, dst[n:])
	}
	s.filled = seq.Max(s.filled, r.End)
	return sum, summed && n == 0
}

// Acked releases what the peer has.
func (s *Session) Acked(to seq.Num) {
	s.out.acked(to)
	if s.full && s.phase != phaseClosed && s.out.empty() {
		s.snd.Acked(to)
	}
}

// Offer takes octets that arrived; see stack.Upper.
func (s *Session) Offer(at seq.Num, pieces [][]byte, n int) (kept int) {
	switch s.phase {
	case phaseFull:
		kept, err := s.rcv.Offer(at, pieces, n)
		if err != nil {
			s.fail(err)
			return n
		}
		return kept
	case phaseFarewell:
		kept, err := s.rcv.Offer(at, pieces, n)
		if s.hearFarewell(err); err != nil {
			return n
		}
		return kept
	case phaseStartup:
		if at != s.left {
			return 0 // start-up frames are taken in order only: TCP sends what is behind a hole again
		}
		return s.startup(at, pieces, n)
	}
	s.ignored += uint64(n)
	return n
}

// EndsAt says that the peer's FIN is at that number, which the left edge has not reached.
func (s *Session) EndsAt(at seq.Num) {
	if s.phase == phaseFull {
		s.rcv.EndsAt(at)
	}
}

// Advance moves the left edge.
func (s *Session) Advance(to seq.Num) {
	s.left = to
	switch s.phase {
	case phaseFull:
		if err := s.rcv.Advance(to); err != nil {
			s.fail(err)
		}
	case phaseFarewell:
		s.hearFarewell(s.rcv.Advance(to))
	}
}

// Space is the window that may be promised.
func (s *Session) Space() int {
	if s.phase != phaseFull {
		return s.cfg.Window
	}
	return min(s.cfg.Window, max(s.rcv.Space(), MinWindow))
}

// fail ends the stream with an error found here.
func (s *Session) fail(err *ulpdu.Error) {
	s.note(err)
	if s.phase == phaseFull {
		s.qp.Fail(err)
	}
	s.phase = phaseEnding
	s.rcv.Release()
}

func (s *Session) note(err error) {
	if s.err == nil {
		s.err = err
	}
}

// EMSSChanged is called when segments carry more or less than before.
func (s *Session) EMSSChanged() {
	if s.full {
		s.snd.SetEMSS(s.tr.EMSS())
	}
}

// PeerClosed says that the peer's FIN is at the left edge.
func (s *Session) PeerClosed(now tick.Time) {
	switch s.phase {
	case phaseStartup:
		s.startupRefused("the peer closed the connection", s.out.empty())
		s.phase = phaseEnding
		s.tr.Shutdown(now)
	case phaseFull:
		cut := s.rcv.Closed(s.left)
		if cut != nil {
			s.note(cut)
		}
		s.qp.PeerClosed(cut == nil)
		s.tr.Shutdown(now)
	default:
		s.tr.Shutdown(now)
	}
}

// Ended says that the connection is gone; cause is nil when both sides closed it.
func (s *Session) Ended(cause error) {
	if s.phase == phaseClosed {
		return
	}
	if s.phase == phaseStartup {
		why := "the connection closed"
		if cause != nil {
			why = cause.Error()
		}
		if cause == tcp.CauseRefused || cause == tcp.CauseUnreachable { // MPA had not begun
			s.note(fmt.Errorf("%w: %w", ErrConnect, cause))
		}
		// A peer that resets may do so before its acknowledgement leaves. What a socket has not taken never left.
		left := s.out.empty() || !s.cfg.Reliable && !s.out.unsent()
		s.startupRefused(why, cause == tcp.CauseReset && left)
	}
	s.phase = phaseClosed
	if s.qp != nil {
		if cause == nil || cause == tcp.CauseClosed {
			s.qp.Closed()
		} else {
			s.note(cause)
			s.qp.Lost()
		}
		if s.err == nil && s.qp.Err() != nil {
			s.err = s.qp.Err()
		}
	} else if cause != nil && cause != tcp.CauseClosed {
		s.note(cause)
	}
	if s.full {
		s.rcv.Release()
	}
	s.startAt, s.closeAt = tick.Never, tick.Never
	s.tellDown()
	s.cfg.Handler.Closed(s, s.err)
}

func (s *Session) tellDown() {
	if s.told && !s.downTold {
		s.downTold = true
		s.cfg.Handler.Disconnected(s, s.err)
	}
}
