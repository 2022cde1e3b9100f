package iwarp

import "xwarp/tcp/seq"

// Recover is called after a panic with v. When registered memory could not be accessed, the stream ends with a
// Terminate, and Recover returns true. What was being placed counts as never received. What Fill was to write, and the
// peer has seen nothing of, is taken back: the Terminate goes in its place. What the peer may have seen cannot be made
// again, and the connection breaks.
func (c *Conn) Recover(v any) bool {
	if c.qp == nil || c.state == closed {
		return false
	}
	err := c.qp.Fault(v)
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
	if !c.snd.TakeBack(from) { // the FPDU began before
		c.tr.Break()
		return
	}
	c.sndNxt, c.filled = from, from
	c.qp.TakenBack()
}

// Contain, deferred around calls of c, calls Recover after a panic. Other panics go on.
func (c *Conn) Contain() {
	if v := recover(); v != nil && !c.Recover(v) {
		panic(v)
	}
}

// FillSafely is Fill for a transport that does not call Recover itself. After false, Next is asked again.
func (c *Conn) FillSafely(r seq.Range, dst []byte) (done bool) {
	defer c.Contain()
	c.Fill(r, dst)
	return true
}

// Abandon ends the connection after a panic in it or below: it tells what it can, and the handler in any case.
// It is the last call.
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
