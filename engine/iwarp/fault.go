package iwarp

import (
	"xwarp/mpa"
	"xwarp/tcp/seq"
)

// Recover is called after a panic with v. If registered memory was inaccessible, the stream ends with a Terminate, and
// Recover returns true. Data being placed counts as never received. Data that Fill was writing and the peer has not
// seen is taken back, and the Terminate is sent instead. Data that the peer may have seen cannot be reproduced, and the
// connection breaks.
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

// takeBack takes back data that Fill could not write, and everything frozen after it.
func (c *Conn) takeBack() {
	if c.fillAt.Less(c.filled) {
		c.tr.Break()
		return
	}
	if !c.snd.Unfreeze(c.fillAt) { // the FPDU began earlier
		c.tr.Break()
		return
	}
	c.tr.TakeBack(c.fillAt)
	c.sndNxt, c.filled = c.fillAt, c.fillAt
	c.qp.UnfreezeTerminate()
}

// Contain, deferred around calls of c, calls Recover after a panic. Other panics propagate.
func (c *Conn) Contain() {
	if v := recover(); v != nil && !c.Recover(v) {
		panic(v)
	}
}

// Gather is Fill for a transport that accepts scattered data and does not call Recover itself. It appends the data
// frozen by Next to v, which must have room. If it returns false, v is unchanged, and Next must be asked again.
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

// Abandon ends the connection after a panic in it or below. It notifies the layers that still work, and always the
// handler. It is the last call.
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
