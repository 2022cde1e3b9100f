package iwarp

import (
	"xwarp/mpa"
	"xwarp/tcp/seq"
)

// Recover is called after a panic with v. When registered memory could not be accessed, the stream ends with a
// Terminate, and Recover returns true. What was being placed counts as never received. What Fill was to write, and the
// peer has seen nothing of, is taken back, and the Terminate goes in its place. What the peer may have seen cannot be
// made again, and the connection breaks.
func (c *Conn) Recover(v any) bool {
	if c.qp == nil || c.state == closed {
		return false
	}
	err := c.qp.RecoverMemoryFault(v)
	if err == nil {
		return false
	}
	c.fail(err)
	if c.filling {
		c.filling = false
		c.takeBack()
	}
	return true
}

// takeBack takes back what Fill could not write, and what was frozen after it.
func (c *Conn) takeBack() {
	if c.fillAt.Less(c.filled) {
		c.tr.Break()
		return
	}
	from := c.tr.TakeBack(c.fillAt)
	if !c.snd.Unfreeze(from) { // the FPDU began before
		c.tr.Break()
		return
	}
	c.sndNxt, c.filled = from, from
	c.qp.UnfreezeTerminate()
}

// Contain, deferred around calls of c, calls Recover after a panic. Other panics go on.
func (c *Conn) Contain() {
	if v := recover(); v != nil && !c.Recover(v) {
		panic(v)
	}
}

// Gather is Fill for a transport that takes bytes in pieces, and does not call Recover itself. It appends what Next
// has frozen to v, which has Space for it. After false v is as before, and Next is asked again.
func (c *Conn) Gather(r seq.Range, v *mpa.Vector) (done bool) {
	before := v.Snapshot()
	defer c.containGather(v, before)
	if c.framed && c.out.empty() {
		c.filling, c.fillAt = true, r.Start
		c.snd.Gather(r, v)
		c.filling = false
		c.filled = seq.Max(c.filled, r.End)
	} else {
		c.Fill(r, v.Extend(r.Len()))
	}
	return true
}

func (c *Conn) containGather(v *mpa.Vector, before mpa.Snapshot) {
	if x := recover(); x != nil {
		if v.Restore(before); !c.Recover(x) {
			panic(x)
		}
	}
}

// Abandon ends the connection after a panic in it or below. The layers that still work are told, and the handler in
// any case. It is the last call.
func (c *Conn) Abandon(why error) {
	if c.state == closed {
		return
	}
	c.setErr(why)
	defer func() {
		if recover() != nil {
			c.state = closed
			c.cfg.Handler.Closed(c, c.err)
		}
	}()
	c.Ended(why)
}
