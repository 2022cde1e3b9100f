package iwarp

import "xwarp/tcp/seq"

// guardFill is deferred by Fill. When registered memory cannot be accessed, the stream ends with a Terminate.
// The octets r, which have their place in the stream before it, are written blank if the peer has seen
// nothing of them; what it may have seen the rest of cannot be made up, and the connection breaks.
func (c *Conn) guardFill(r seq.Range, n int, dst []byte) {
	v := recover()
	if v == nil {
		return
	}
	err := c.qp.Fault(v)
	if err == nil {
		panic(v)
	}
	c.fail(err)
	if r.Start.Less(c.filled) {
		c.tr.Break()
		return
	}
	if !c.blank {
		c.blank, c.blankFrom = true, r.Start
	}
	c.qp.Blank(true)
	c.snd.FillSum(seq.Range{Start: r.Start.Add(n), End: r.End}, dst[n:])
	c.filled = r.End
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
