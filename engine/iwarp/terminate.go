package iwarp

import (
	"xwarp/ddp"
	"xwarp/ddp/rdmap"
	"xwarp/mpa/startup"
	"xwarp/mpa/ulpdu"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// terminateOnly replaces a queue pair that cannot start: the only ULPDU that it sends is a Terminate (RFC 6581, 9.3). A
// responder sends it after the peer's first FPDU, because it may send none before (RFC 5044, 7.1.2, rule 4).
type terminateOnly struct {
	data []byte // the ULPDU of the Terminate
	wait bool   // the peer's first FPDU has not arrived yet, so nothing may be sent
	sent bool
}

// NextULPDU implements mpa.Source.
func (t *terminateOnly) NextULPDU(int) (ref ulpdu.Ref, n int) {
	if t.wait || t.sent {
		return ref, 0
	}
	t.sent = true
	return ref, len(t.data)
}

// ULPDUWaiting implements mpa.Source.
func (t *terminateOnly) ULPDUWaiting() bool { return !t.wait && !t.sent }

// ReadULPDU implements mpa.Source.
func (t *terminateOnly) ReadULPDU(_ ulpdu.Ref, dst []byte) (int, []byte) {
	return copy(dst, t.data), nil
}

// LendULPDU implements mpa.Source.
func (t *terminateOnly) LendULPDU(ulpdu.Ref, []byte) (int, []byte) { return 0, nil }

// ReleaseULPDU implements mpa.Source.
func (t *terminateOnly) ReleaseULPDU(ulpdu.Ref) {}

// Place implements mpa.Sink. The contents of the peer's first FPDU are ignored: its arrival permits to send.
func (t *terminateOnly) Place(*ulpdu.View, bool) *ulpdu.Error {
	t.wait = false
	return nil
}

// Silent implements mpa.Sink.
func (t *terminateOnly) Silent([]byte, int) bool { return false }

// Deliver implements mpa.Sink.
func (t *terminateOnly) Deliver([]byte, int) *ulpdu.Error { return nil }

// startTerminate ends a start-up that failed here. A peer that knows RFC 6581 gets a Terminate with MPA's code. The
// caller has set c.err.
func (c *Conn) startTerminate(p *startup.Params, left seq.Num, code uint8) {
	if p.Revision != startup.RevEnhanced {
		c.failStartup(c.err)
		return
	}
	t := rdmap.Terminate{Cause: ddp.MakeCause(ulpdu.MPA, 0, code)}
	c.terminate = &terminateOnly{
		data: rdmap.AppendTerminateULPDU(nil, &t, ddp.Version(p.Version)), wait: c.cfg.Responder,
	}
	c.startFraming(p, left, c.terminate, c.terminate)
	c.move(cannotStart)
	c.endTerminating(nil)
}

// endTerminating ends the connection with the Terminate, unless that waits for the peer's first FPDU. If err, the
// Receiver's error for that FPDU, is not nil, it ends the connection without the Terminate.
func (c *Conn) endTerminating(err *ulpdu.Error) {
	if err == nil && c.terminate.wait {
		return
	}
	c.startAt = tick.Never
	c.failStartup(c.err)
}
