package tcp

import (
	"xwarp/tcp/loss"
	"xwarp/tcp/wire"
)

// ecnState is explicit congestion notification in both directions: RFC 3168, RFC 8257's exact echo, or RFC
// 9768 (accecn.go).
type ecnState struct {
	mode    ECNMode // what was negotiated: ECNOff, ECNClassic, ECNAccurate
	exact   bool    // DCTCP: ECE says what the last segment was (RFC 8257, 3.2)
	latched bool    // ECE until the peer says CWR (RFC 3168, 6.1.3)
	ce      bool    // the last segment with octets was marked
	marked  bool    // the current segment is marked
	cwr     bool    // say CWR with the next new octets
	// what is sent is not ECN-capable: the path changes our bits, or the handshake was without them for a
	// while
	noECT bool
	bare  bool // no bits in SYN-ACKs any more
	asked askedSet
	acc   accECN
}

const ecnSetup = wire.ECE | wire.CWR

// arrived takes the IP bits and CWR of an acceptable segment.
func (e *ecnState) arrived(c *Conn, s *Segment) {
	if e.mode == ECNOff {
		return
	}
	if s.Flags&wire.CWR != 0 {
		e.latched = false
	}
	e.marked = s.ECN == CE
	if e.marked {
		c.n.CEIn++
	}
	if e.mode == ECNAccurate {
		e.acc.count(s)
	}
}

// textArrived notes a segment with octets. When marks begin or end, what came before is acknowledged at once
// with the old echo (RFC 8257, 3.2); RFC 9768, 3.2.2.5.1 wants the change told at once, too.
func (e *ecnState) textArrived(c *Conn) {
	switch e.mode {
	case ECNClassic:
		if e.exact && e.marked != e.ce {
			if c.rcvNxt != c.ackedTo {
				c.owe(c.now.dup, false)
			}
			c.now.ack = true
		}
		if e.marked && !e.latched {
			e.latched = true
			c.now.ack = true
		}
	case ECNAccurate:
		if e.marked != e.ce || e.acc.unsaid >= 2 {
			e.acc.unsaid = 0
			c.now.ack = true
		}
	}
	e.ce = e.marked
}

// finish ends the processing of one segment.
func (e *ecnState) finish() { e.marked = false }

// echo reports whether an acknowledgement owed now carries ECE.
func (e *ecnState) echo() bool {
	if e.mode != ECNClassic {
		return false
	}
	if e.exact {
		return e.ce
	}
	return e.latched
}

// feedback puts what s says about marks into a.
func (e *ecnState) feedback(c *Conn, s *Segment, a *loss.Ack) {
	switch {
	case s.Flags&wire.SYN != 0:
	case e.mode == ECNClassic:
		a.ECE = s.Flags&wire.ECE != 0
		if a.ECE {
			c.n.ECEIn++
		}
	case e.mode == ECNAccurate:
		a.CEOctets = e.acc.feedback(c, s)
		c.n.CEOctetsOut += uint64(a.CEOctets)
		if e.acc.marked && c.una.Less(s.Ack) {
			e.acc.marked = false
			a.CEOctets += c.emss
		}
	}
}

// result takes loss recovery's answer.
func (e *ecnState) result(r *loss.Result) {
	if r.CWR && e.mode == ECNClassic {
		e.cwr = true
	}
}

// segment sets the bits of a segment with octets or FIN, or of a probe.
func (e *ecnState) segment(out *Out) {
	if e.mode == ECNAccurate {
		out.Flags |= e.acc.ace(false)
	} else if e.echo() {
		out.Flags |= wire.ECE
	}
}

// newData sets the bits of octets sent for the first time: octets sent again are not ECT (RFC 3168, 6.1.5).
func (e *ecnState) newData(out *Out) {
	if e.mode == ECNOff || e.noECT || out.Payload.Len() == 0 {
		return
	}
	out.ECN = ECT0
	if e.cwr {
		out.Flags |= wire.CWR
		e.cwr = false
	}
}

// pureACK sets the bits of an acknowledgement; the AccECN option goes only with these, so that it never takes
// room from octets.
func (e *ecnState) pureACK(out *Out, ece bool) {
	if e.mode == ECNAccurate {
		out.Flags |= e.acc.ace(out.Opt.Present&wire.HasSACK == 0)
		e.acc.maybeOption(out)
	} else if ece {
		out.Flags |= wire.ECE
	}
}
