package iwarp

import "xwarp/tcp/seq"

// Recover is called after a panic with v. When that was in Fill, because registered memory cannot be accessed, the
// stream ends with a Terminate, and it returns true. The octets that Fill was to write have their place in the stream
// before it: asked for again they are blank if the peer has seen nothing of them. What it may have seen the rest of
// cannot be made up, and the connection breaks.
func (c *Conn) Recover(v any) bool {
	if !c.filling {
		return false
	}
	err := c.qp.Fault(v)
	if err == nil {
		return false
	}
	c.filling = false
	c.fail(err)
	switch {
	case c.fillAt.Less(c.filled):
		c.tr.Break()
	case !c.blank:
		c.blank, c.blankFrom = true, c.fillAt
	}
	return true
}

// FillSafely is Fill for a transport that does not call Recover itself.
func (c *Conn) FillSafely(r seq.Range, dst []byte) {
	defer func() {
		if v := recover(); v == nil {
			return
		} else if !c.Recover(v) {
			panic(v)
		}
		if c.blank && c.blankFrom.LessEq(r.Start) {
			c.Fill(r, dst)
		}
	}()
	c.Fill(r, dst)
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
