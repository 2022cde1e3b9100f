package iwarp

import (
	"xwarp/ddp/rdmap"
	"xwarp/engine/verbs"
	"xwarp/mpa/startup"
	"xwarp/mpa/ulpdu"
	"xwarp/tcp/tick"
)

// waitFirst starts and stops a responder's timer for the initiator's first FPDU.
func (c *Conn) waitFirst(now tick.Time) {
	switch {
	case c.state == open && c.qp.State() != rdmap.RTR:
		c.startAt = tick.Never
	case c.awaitFirst && c.params.PeerToPeer:
		c.startAt = now.Add(c.cfg.StartupTimeout)
	case c.awaitFirst && c.cfg.FirstFPDUTimeout != tick.Forever:
		c.startAt = now.Add(c.cfg.FirstFPDUTimeout)
	}
	c.awaitFirst = false
}

// waitRest starts and stops the timer for bytes that are missing before received ones. The timer stops when the FPDUs
// before restTo are complete: restTo is where the received bytes ended when the timer started. Completing only some of
// these FPDUs does not extend it: a peer cannot make us hold bytes behind a hole for longer. The timer does not run
// while the next FPDU waits for a receive.
func (c *Conn) waitRest(now tick.Time) {
	switch next, came := c.rcv.Incomplete(); {
	case next == came || c.cfg.FPDUTimeout == tick.Forever || c.rcv.Waiting():
		c.restAt = tick.Never
	case c.restAt == tick.Never || next >= c.restTo:
		c.restTo, c.restAt = came, now.Add(c.cfg.FPDUTimeout)
	}
}

// waitReceive starts and stops the timer of a message that waits for a receive.
func (c *Conn) waitReceive(now tick.Time) {
	switch msn, bounded := c.qp.WaitingMessage(); {
	case !bounded || !c.rcv.Waiting():
		c.recvAt = tick.Never
	case c.recvAt == tick.Never || c.recvOf != msn:
		c.recvOf, c.recvAt = msn, now.Add(c.cfg.ReceiveTimeout)
	}
}

// waitReport starts and stops the timer of a Report that waits to be sent with a message.
func (c *Conn) waitReport(now tick.Time) {
	switch held := c.qp.HeldReport(); {
	case !held:
		c.reportAt = tick.Never
	case c.reportAt == tick.Never:
		c.reportAt = now.Add(reportDelay)
	}
}

// Deadline returns the time at which Expire must be called, or tick.Never.
func (c *Conn) Deadline() tick.Time {
	return min(c.startAt, c.closeAt, c.restAt, c.recvAt, c.reportAt)
}

// Expire runs the timers that are due.
func (c *Conn) Expire(now tick.Time) {
	if c.startAt <= now {
		c.expireStart(now)
	}
	if c.restAt <= now {
		c.expireRest(now)
	}
	if c.recvAt <= now {
		c.recvAt = tick.Never
		c.qp.StopWaiting()
		c.Advance(c.rcvNxt)
	}
	if c.reportAt <= now {
		c.reportAt = tick.Never
		c.qp.ReleaseReport()
		c.Schedule()
	}
	if c.closeAt <= now {
		c.closeAt = tick.Never
		if c.qp != nil {
			c.qp.Lost()
		}
		c.shut(c.move(closeLate), now)
	}
}

// expireStart ends a connection whose start-up, or the initiator's first FPDU, takes too long.
func (c *Conn) expireStart(now tick.Time) {
	c.startAt = tick.Never
	if c.state != open {
		c.setErr(timeoutIn(c.exchange.Stage()))
		c.startupClosed("timed out")
		c.shut(c.move(late), now)
	} else if c.qp.State() == rdmap.RTR {
		c.setErr(timeoutIn(startup.StageEstablished))
		c.abort(late, now)
	}
}

// expireRest ends a connection that has waited too long for the rest of an FPDU.
func (c *Conn) expireRest(now tick.Time) {
	if c.waitRest(now); c.restAt > now {
		return // the missing bytes have arrived since Settle
	}
	c.restAt = tick.Never
	err := c.rcv.TimeOut()
	if err.Code == ulpdu.CodeClosed {
		c.setErr(err)
		c.abort(late, now)
		return
	}
	c.fail(err)
}

func timeoutIn(st startup.Stage) error { return &StageError{Stage: st} }

// StageError is the error of a start-up that timed out in a stage. In StageEstablished, a responder timed out while it
// waited for the initiator's first FPDU. It wraps verbs.ErrTimeout.
type StageError struct{ Stage startup.Stage }

func (e *StageError) Error() string {
	step := "in the exchange"
	switch e.Stage {
	case startup.StageAwaitRequest:
		step = "waiting for the peer's MPA Request"
	case startup.StageDecide:
		step = "waiting for the consumer to accept or reject"
	case startup.StageAwaitReply:
		step = "waiting for the peer's MPA Reply"
	case startup.StageAwaitRtr:
		step = "waiting for the peer's Rtr frame"
	case startup.StageEstablished:
		step = "waiting for the initiator's first FPDU, before which a responder may send none"
	}
	return verbs.ErrTimeout.Error() + ": " + step
}

// Unwrap makes errors.Is(err, verbs.ErrTimeout) true.
func (e *StageError) Unwrap() error { return verbs.ErrTimeout }
