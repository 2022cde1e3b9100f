package tcp

import (
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// Shutdown sends FIN once the Source is empty (RFC 9293, 3.10.4). No byte may be added to the Source afterwards. In
// SYN-SENT it ends the connection at once.
func (c *Conn) Shutdown(now tick.Time) {
	c.inRun = false
	if c.fin != finNone || !c.enter(shutdown) {
		return
	}
	if c.state == Closed {
		c.enterClosed(CauseAborted)
		return
	}
	c.fin = finQueued
	if c.cfg.Linger > 0 {
		c.timer.linger = now.Add(c.cfg.Linger)
	}
}

// Detach ends reading: new bytes from the peer are answered with RST (RFC 9293, 3.6.1), and FIN-WAIT-2 ends after
// Config.FinWait2. It includes Shutdown.
func (c *Conn) Detach(now tick.Time) {
	c.Shutdown(now)
	c.detached = true
	if c.state == FinWait2 && c.timer.wait == tick.Never {
		c.boundFinWait2(now)
	}
}

// Abort ends the connection (RFC 9293, 3.10.5). The next Poll returns a RST if the peer needs one. In CLOSING and
// LAST-ACK it needs one only before our FIN was sent: in this package, other than in the RFC, these states begin before
// the FIN is sent.
func (c *Conn) Abort(now tick.Time) {
	switch {
	case c.state == Closed:
	case c.state == SynSent, c.state == TimeWait,
		(c.state == Closing || c.state == LastAck) && c.fin == finSent:
		c.enterClosed(CauseAborted)
	default:
		c.endWithReset(CauseAborted)
	}
}

// endWithReset ends the connection and queues a RST to the peer.
func (c *Conn) endWithReset(why Cause) {
	at := c.nxt
	c.enterClosed(why)
	c.reply.set(at)
	c.reply.ack = true
}

// resetReply is a queued RST: the answer to one segment, or the end of the connection.
type resetReply struct {
	due bool
	ack bool // with ACK: it ends this connection, and does not answer a segment
	at  seq.Num
}

func (r *resetReply) set(at seq.Num) { *r = resetReply{due: true, at: at} }

// pollReset writes the queued RST to out.
func (c *Conn) pollReset(now tick.Time, out *Out) {
	f := wire.RST
	if c.reply.ack {
		f |= wire.ACK
	}
	c.header(out, f, c.reply.at, c.rcvNxt, now)
	if !c.reply.ack {
		out.Window = 0
		out.Opt.Present = 0
	}
	c.reply.due = false
	c.n.ResetsOut++
}

// Recycle ends a connection in TIME-WAIT before its time is over, so that a SYN for which Reusable is true can start a
// new one.
func (c *Conn) Recycle() {
	if c.state == TimeWait {
		c.enterClosed(CauseClosed)
	}
}

// Reusable reports whether s, a SYN for a connection in TIME-WAIT, may start a new connection (RFC 6191; RFC 9293,
// 3.10.7.4): its timestamp is newer, or, without timestamps or with an equal one, its number is beyond all received
// bytes. The caller then calls Recycle and passes s to the Listener, which chooses an ISN later than all numbers of c
// (RFC 6528).
func (c *Conn) Reusable(s *Segment) bool {
	if c.state != TimeWait || s.Flags&(wire.SYN|wire.ACK|wire.RST|wire.FIN) != wire.SYN {
		return false
	}
	if c.ts.on && s.Opt.Present&wire.HasTS != 0 {
		d := int32(s.Opt.TSVal - c.ts.recent)
		return d > 0 || d == 0 && c.rcvNxt.LessEq(s.Seq)
	}
	return c.rcvNxt.LessEq(s.Seq)
}
