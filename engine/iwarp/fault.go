package iwarp

import (
	"xwarp/mpa"
	"xwarp/tcp/seq"
)

// Recover handles the recovered value v of a panic. If the cause was an access to inaccessible registered memory,
// Recover ends the stream and returns true; otherwise it does nothing and returns false. The stream ends with a
// Terminate. Data that was being placed counts as never received. New data that Fill was writing is taken back, and the
// Terminate is sent in its place. If Fill was writing data again that the peer may already have a part of, the
// connection is reset instead.
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
	if !c.snd.Unfreeze(c.fillAt) { // part of the FPDU at fillAt was sent
		c.tr.Break()
		return
	}
	c.tr.TakeBack(c.fillAt)
	c.sndNxt, c.filled = c.fillAt, c.fillAt
	c.qp.UnfreezeTerminate()
}

// Contain handles a panic with Recover, and panics again if Recover returns false. Callers of c defer it.
func (c *Conn) Contain() {
	if v := recover(); v != nil && !c.Recover(v) {
		panic(v)
	}
}

// Gather is Fill for a transport that can send data from several places and does not call Recover itself. It appends
// the bytes r, which Next has frozen, to v, which must have room for them. It returns false after a panic that Recover
// handled: v is unchanged then, and Next must be called again.
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

// Abandon ends the connection after a panic in c or in its transport. It calls Ended, and if that panics as well, at
// least Handler.Closed. It must be the last call.
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
