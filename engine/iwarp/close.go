package iwarp

import (
	"fmt"

	"xwarp/ddp/rdmap"
	"xwarp/engine/verbs"
	"xwarp/mpa/ulpdu"
	"xwarp/tcp"
	"xwarp/tcp/tick"
)

// Disconnect closes the connection. During the start-up it resets it. In full operation it closes gracefully if the
// queue pair has no work under way (rdmap.QP.Busy); otherwise it resets the connection and flushes the queue pair.
func (c *Conn) Disconnect(now tick.Time) {
	if c.state == open {
		c.qp.Close()
		c.Settle(now)
	}
	c.shut(c.move(disconnect), now)
	c.Schedule()
}

// Abort resets the connection and flushes the queue pair.
func (c *Conn) Abort(now tick.Time) { c.abort(abort, now) }

func (c *Conn) abort(why event, now tick.Time) {
	if c.state == closed { // the queue pair may belong to another stream now
		return
	}
	if c.qp != nil {
		c.qp.Abort()
	}
	c.shut(c.move(why), now)
}

// Settle does the work that the layers requested since the last call. The transport calls it before it transmits.
func (c *Conn) Settle(now tick.Time) {
	c.cfg.Handler.TakePosted()
	if c.state == open && c.rcv.Waiting() { // receives may have been posted
		c.Advance(c.rcvNxt)
		if c.finWaits && !c.rcv.Waiting() {
			c.PeerClosed(now)
		}
	}
	if c.finPending && !c.out.unsent() {
		c.finPending = false
		c.closeAt = now.Add(c.cfg.CloseTimeout)
		c.tr.Shutdown(now)
	}
	if !c.drivesQP() {
		return
	}
	if c.awaitFirst || c.startAt != tick.Never {
		c.waitFirst(now)
	}
	c.waitRest(now)
	c.waitReceive(now)
	c.waitReport(now)
	c.runActions(now)
}

// drivesQP reports whether the actions of the queue pair apply to this connection: from the start of full operation
// until the connection has ended. Afterwards the queue pair may belong to another stream.
func (c *Conn) drivesQP() bool { return c.framed && c.terminate == nil && c.state != closed }

// runActions performs the actions that the queue pair requests. It reports whether one of them was a RST.
func (c *Conn) runActions(now tick.Time) (aborted bool) {
	a := c.qp.Actions()
	if a == 0 {
		return false
	}
	if a&rdmap.ActTimer != 0 {
		c.closeAt = now.Add(c.cfg.CloseTimeout)
	}
	if a&rdmap.ActRST != 0 {
		c.tr.Abort(now)
	} else if a&rdmap.ActFIN != 0 {
		c.tr.Shutdown(now)
	}
	c.takeErr()
	switch c.qp.State() {
	case rdmap.RTR, rdmap.RTS:
	default:
		c.notifyDisconnected()
	}
	return a&rdmap.ActRST != 0
}

// fail ends the stream with an error that was detected here, such as an invalid FPDU.
func (c *Conn) fail(err *ulpdu.Error) {
	c.setErr(err)
	if c.state == open {
		c.qp.Fail(err)
	}
	c.move(broken)
}

// setErr sets the error of c, unless c has one: the first cause is kept.
func (c *Conn) setErr(err error) {
	if c.err == nil {
		c.err = err
	}
}

// takeErr sets the error of c to that of the queue pair, if it has one.
func (c *Conn) takeErr() {
	if e := c.qp.Err(); e != nil {
		c.setErr(e)
	}
}

// PeerClosed reports that the peer's FIN and all bytes before it have arrived.
func (c *Conn) PeerClosed(now tick.Time) {
	switch c.state {
	case starting:
		c.startupRefused("the peer closed the connection", c.out.empty())
	case open:
		if c.finWaits = c.rcv.Waiting(); c.finWaits {
			return // messages before the FIN wait for receives
		}
		cut := c.rcv.Closed(c.rcvNxt)
		c.qp.PeerClosed(cut)
		if cut != nil { // the Terminate is sent before our FIN
			c.setErr(cut)
			c.move(broken)
		}
	}
	a := c.move(peerFIN)
	if c.drivesQP() && c.runActions(now) {
		return // a FIN would say that all data was sent, and TCP sends no RST after a FIN
	}
	c.shut(a, now)
}

// Ended reports that the connection has ended. cause is nil or tcp.CauseClosed if both sides closed it.
func (c *Conn) Ended(cause error) {
	if c.state == closed {
		return
	}
	if c.state == starting {
		c.startupEnded(cause)
	}
	c.move(ended)
	if cause == tcp.CauseClosed {
		cause = nil
	}
	if c.qp != nil {
		c.takeErr() // a Terminate received just before the reset is the cause
	}
	if cause != nil {
		c.setErr(cause)
	}
	if c.qp != nil {
		if cause == nil {
			c.qp.Closed()
		} else {
			c.qp.Lost()
		}
		c.takeErr()
	}
	c.startAt, c.closeAt = tick.Never, tick.Never
	c.notifyDisconnected()
	c.cfg.Handler.Closed(c, c.err)
}

// startupEnded sets the error of a connection that ended during the start-up.
func (c *Conn) startupEnded(cause error) {
	why := "the connection closed"
	if cause != nil {
		why = cause.Error()
	}
	if cause == tcp.CauseRefused || cause == tcp.CauseUnreachable { // without a TCP connection MPA had not started
		c.setErr(fmt.Errorf("%w: %w", verbs.ErrConnect, cause))
	}
	// left means that the Request was sent. The peer may reset the connection before TCP acknowledges the Request, so
	// the engine's TCP need not wait for that. With a kernel socket, frames count as acknowledged when the kernel
	// accepts them: only these were sent.
	left := c.out.empty() || !c.cfg.Reliable && !c.out.unsent()
	c.startupRefused(why, cause == tcp.CauseReset && left)
}

func (c *Conn) notifyDisconnected() {
	if c.notify(notifiedDown) {
		c.cfg.Handler.Disconnected(c, c.err)
	}
}
