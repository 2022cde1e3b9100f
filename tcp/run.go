package tcp

import (
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// Run says how a segment relates to the one before it.
type Run uint8

const (
	RunNone  Run = iota // nothing is known
	RunFirst            // PollNext may go on from here
	// only sequence number, length, flags and ECN differ from the segment before, and it has no other options
	RunNext
)

// PollNext does what Poll does, at the same time and with the Source of the last call of Poll or PollNext,
// which wrote to out: nobody touched out or c since. It is for runs of new octets, where most of what Poll
// decides and writes is as it was.
func (c *Conn) PollNext(now tick.Time, src Source, out *Out) bool {
	if !c.run || c.right.Diff(c.nxt) < c.emss || !c.tx.PermitNext(now) {
		return c.Poll(now, src, out)
	}
	n, more := src.Next(c.emss)
	switch {
	case n > c.emss:
		c.frozen = c.nxt.Add(n)
		ok := c.Poll(now, src, out)
		c.more = more
		return ok
	case !more && c.fin == finQueued:
		c.run, c.more = false, more
		c.sendNew(n, c.right.Diff(c.nxt) > n, more, now, out)
		return true
	case n == 0: // no octets left, or the next record waits for a larger EMSS
		c.run, c.more = false, more
		c.tx.NoNewData(now)
		return c.pollProbe(now, out) || c.pollAck(now, out)
	}
	text := seq.Of(c.nxt, n)
	out.Seq, out.Payload, out.Flags, out.Run = text.Start, text, wire.ACK, RunNext
	if !more {
		out.Flags |= wire.PSH
	}
	if c.ecn.mode != ECNOff {
		c.ecn.segment(out)
		c.ecn.newData(out)
	}
	if c.packet(n) > c.pmtu.proven {
		c.pmtu.sent(c, text, n)
	}
	c.tx.SentNext(text, !more, now)
	c.nxt, c.frozen, c.more = text.End, text.End, more
	c.n.SegsOut++
	c.n.OctetsOut += uint64(n)
	return true
}

// runs reports whether the segment of new octets that just left may be the first of a run: the next one needs
// no look at acknowledgements, losses or probes, so that only windows and the Source decide about it.
func (c *Conn) runs(now tick.Time) bool {
	return c.nxt == c.frozen && c.held.empty() && c.nOwed == 0 && !c.reply.due &&
		!(c.cfg.ProbeMTU && now >= c.pmtu.next) && c.tx.Steady()
}
