package iwarp

import (
	"errors"
	"fmt"

	"xwarp/ddp"
	"xwarp/ddp/rdmap"
	"xwarp/engine/verbs"
	"xwarp/mpa"
	"xwarp/mpa/startup"
	"xwarp/mpa/ulpdu"
	"xwarp/tcp/checksum"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// ErrNotAsked is returned by Accept and Reject if there is no Request to answer.
var ErrNotAsked = errors.New("iwarp: no Request waits for an answer")

// startupFrames are the start-up frames that the peer has not acknowledged: at most a Request and an Rtr frame, or a
// Reply.
type startupFrames struct {
	frames []startupFrame
	frozen int // number of frames that next has returned
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

// pullStartup queues the start-up frames that the MPA state machine has to send.
func (c *Conn) pullStartup() {
	for b := c.exchange.Output(); b != nil; b = c.exchange.Output() {
		c.out.add(c.sndNxt, b)
		c.tr.Schedule()
	}
}

// startup passes n bytes that arrived in order to the MPA state machine, and those that follow the start-up frames to
// the Receiver. It returns the number of bytes that were used, placed or held.
func (c *Conn) startup(at seq.Num, pieces [][]byte, n int) (kept int) {
	for i := 0; i < len(pieces) && kept < n && c.state == starting; i++ {
		if c.exchange.Stage() == startup.StageDecide {
			return kept // the consumer must answer first: TCP retransmits these bytes
		}
		p := pieces[i][:min(len(pieces[i]), n-kept)]
		used, err := c.exchange.Input(p)
		kept += used
		if err != nil {
			c.refuse(at.Add(kept), err)
			return n
		}
		c.onStage(at.Add(kept))
		if used == len(p) {
			continue
		}
		switch c.state {
		case open:
			rest, err := c.rcv.Offer(at.Add(kept), append([][]byte{p[used:]}, pieces[i+1:]...),
				n-kept, checksum.Known{})
			if err != nil {
				c.fail(err)
				return n
			}
			return kept + rest
		case starting:
			return kept // later bytes wait for the consumer's answer: TCP retransmits them
		}
	}
	if c.state == ending {
		return n
	}
	return kept
}

// onStage acts on the stage that the start-up has reached. All bytes before left are processed.
func (c *Conn) onStage(left seq.Num) {
	c.pullStartup()
	switch c.exchange.Stage() {
	case startup.StageDecide:
		if c.notify(notifiedRequest) {
			c.rcvNxt = left
			c.cfg.Handler.Request(c, c.rsp.Request())
		}
	case startup.StageEstablished:
		c.establish(left)
	case startup.StageRejected:
		if !c.cfg.Responder {
			c.params = c.ini.Params()
			c.failStartup(&verbs.Rejection{PrivateData: c.params.PrivateData})
		}
	case startup.StageFailed:
		c.failStartup(verbs.ErrStartup)
	}
}

// refuse ends a start-up because the peer's frame is invalid or asks too much. The peer gets nothing, a Reply with our
// version or, as the only FPDU, the Terminate that RFC 6581 requires.
func (c *Conn) refuse(left seq.Num, cause *ulpdu.Error) {
	err := fmt.Errorf("%w: %w", verbs.ErrStartup, cause)
	t := c.ini.Terminate()
	if c.cfg.Responder || t == nil {
		c.pullStartup() // a peer of another version gets a Reply that says so (RFC 5044, C.2.1)
		c.failStartup(err)
		return
	}
	c.setErr(err)
	if c.startFPDUs(left, t.Code) {
		c.fail(t)
		c.tr.Schedule()
	}
}

// establish starts full operation. left is the beginning of the peer's first FPDU.
func (c *Conn) establish(left seq.Num) {
	if !c.startFPDUs(left, ulpdu.CodeLocal) {
		return
	}
	c.notify(notifiedUp)
	c.cfg.Handler.Established(c, c.params)
	c.tr.Schedule()
}

// startFPDUs prepares sender, receiver and queue pair. If the queue pair cannot start, it returns false and ends the
// start-up; a peer that knows RFC 6581 gets a Terminate with the MPA error code.
func (c *Conn) startFPDUs(left seq.Num, code uint8) bool {
	p := c.exchange.Params()
	c.params = p
	q := qpParams(p, c.cfg.Responder)
	q.Private = c.qp.AgreesTo(p.PrivateData)
	if err := c.qp.Start(q); err != nil {
		c.setErr(fmt.Errorf("%w: %w", verbs.ErrStartup, err))
		c.startTerminate(p, left, code)
		return false
	}
	c.startFraming(p, left, c.qp, c.qp)
	c.move(agreed)
	c.startAt = tick.Never
	c.awaitFirst = c.qp.State() == rdmap.RTR
	return true
}

// startFraming prepares sender and receiver. left is the beginning of the peer's first FPDU.
func (c *Conn) startFraming(p *startup.Params, left seq.Num, src mpa.Source, sink mpa.Sink) {
	first := c.sndNxt
	if n := len(c.out.frames); n > 0 {
		first = c.out.frames[n-1].r.End
	}
	c.snd.Init(mpa.SenderConfig{Framing: p.Send, Pack: c.cfg.Pack}, first, c.tr.EMSS(), src)
	c.rcv.Init(mpa.ReceiverConfig{
		Framing: p.Receive, AnyMarkerOrigin: p.Version == 0,
		Layered: c.cfg.Reliable, Strict: c.cfg.AnyCRCError, ReassemblyLimit: c.cfg.Window,
		Pool: c.cfg.Pool,
	}, left, sink)
	c.framed, c.rcvNxt = true, left
}

func qpParams(p *startup.Params, responder bool) rdmap.Params {
	q := rdmap.Params{
		Version: ddp.Version(p.Version),
		Wait:    responder && !p.RtrFrame,
		IRD:     int(p.IRD), ORD: int(p.ORD),
	}
	switch {
	case !p.PeerToPeer:
	case responder:
		q.ExpectRTR = rdmap.RTRKind(p.RTR)
	default:
		q.SendRTR = rdmap.RTRKind(p.RTR)
	}
	return q
}

// failStartup ends a connection that never reached full operation.
func (c *Conn) failStartup(err error) {
	c.setErr(err)
	c.move(refused)
}

// startupRefused sets the error of a start-up that ended early. hadRequest means that the peer got the Request and then
// closed or reset the connection: the initiator's Initiator.Retry may then advise another attempt (RFC 6581, 10).
func (c *Conn) startupRefused(why string, hadRequest bool) {
	if begun := c.startAt != tick.Never; begun && hadRequest && !c.cfg.Responder {
		c.setStartupErr(c.ini.PeerClosed(why))
		return
	}
	c.startupClosed(why)
}

func (c *Conn) startupClosed(why string) { c.setStartupErr(c.exchange.Closed(why)) }

func (c *Conn) setStartupErr(e *ulpdu.Error) {
	if e != nil {
		c.setErr(fmt.Errorf("%w: %w", verbs.ErrStartup, e))
	}
}

// Accept answers the Request passed to Handler.Request. qp becomes the connection's queue pair. It fails with
// ErrNotAsked if no Request waits for an answer, and with the error of startup.Responder.Accept.
func (c *Conn) Accept(qp *rdmap.QP, a startup.Answer) error {
	if c.state != starting || c.exchange.Stage() != startup.StageDecide {
		return ErrNotAsked
	}
	if err := c.rsp.Accept(a); err != nil {
		return err
	}
	c.qp = qp
	c.onStage(c.rcvNxt)
	return nil
}

// Reject rejects the Request. The connection closes after the Reply. It fails as Accept does.
func (c *Conn) Reject(a startup.Answer) error {
	if c.state != starting || c.exchange.Stage() != startup.StageDecide {
		return ErrNotAsked
	}
	if err := c.rsp.Reject(a); err != nil {
		return err
	}
	c.pullStartup()
	c.move(refused)
	return nil
}
