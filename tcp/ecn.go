package tcp

import (
	"xwarp/tcp/loss"
	"xwarp/tcp/seq"
	"xwarp/tcp/wire"
)

// ecnState is the state of explicit congestion notification in both directions: by RFC 3168, with the exact echo of RFC
// 8257, or by RFC 9768 (accecn.go).
type ecnState struct {
	mode    ECNMode // negotiated mode: ECNOff, ECNClassic or ECNAccurate
	isDCTCP bool    // DCTCP: ECE reports the mark of the last segment (RFC 8257, 3.2)
	latched bool    // send ECE until the peer sends CWR (RFC 3168, 6.1.3)
	ce      bool    // the last segment was marked; without accurate feedback, the last one with data
	marked  bool    // the current segment is marked
	cwr     bool    // send CWR with the next new bytes
	// noECT: segments are sent without ECT, because the path changes the ECN bits, or part of the handshake was without
	// ECN.
	noECT       bool
	plainSYNACK bool // further SYN-ACKs have no ECN bits
	asked       askedSet
	acc         accECN
}

const ecnSetup = wire.ECE | wire.CWR

// Number of packets with CE after which an acknowledgement is sent at once: marksWithData while received bytes are not
// acknowledged, marksWithoutData while all are. The latter is at least 3, otherwise two ends would acknowledge each
// other's ACKs for ever, and at most 7, otherwise the ACE field could wrap unnoticed (RFC 9768, 3.2.2.5.1).
const (
	marksWithData    = 2
	marksWithoutData = 3
)

// onSegment processes the ECN bits of the IP header, and CWR, of an acceptable segment.
func (e *ecnState) onSegment(c *Conn, s *Segment) {
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
		e.ackMarks(c, s.size() > 0)
		e.ce = e.marked
	}
}

// ackMarks decides whether the current segment is acknowledged at once because of marks (RFC 9768, 3.2.2.5.1). A
// segment with data is acknowledged at once if marks begin or end with it, or if marksWithData marks are unreported. A
// pure ACK is acknowledged if marksWithoutData marks are unreported, or marksWithData while received bytes are not
// acknowledged. Such an ACK of ACKs has no SACK blocks, so that the peer does not take it for a duplicate
// acknowledgement. If both ends do this, each acknowledges at most a third of the other's ACKs.
func (e *ecnState) ackMarks(c *Conn, hasBytes bool) {
	switch n := e.acc.unreportedMarks; {
	case hasBytes:
		c.cur.ackNow = c.cur.ackNow || e.marked != e.ce || n >= marksWithData
	case n >= marksWithoutData || n >= marksWithData && c.rcvNxt != c.ackedTo:
		if c.nOwed > 0 {
			break // the pending ACK reports the counters
		}
		c.oweAck(seq.Range{}, false)
		c.owed[0].noSACK, c.owed[0].reportsGap = true, false
	}
}

// onText processes a segment with data for the feedback of RFC 3168. With DCTCP, when marks begin or end, the bytes
// before it are acknowledged at once with the previous echo (RFC 8257, 3.2).
func (e *ecnState) onText(c *Conn) {
	if e.mode != ECNClassic {
		return
	}
	if e.isDCTCP && e.marked != e.ce {
		if c.rcvNxt != c.ackedTo {
			c.oweAck(c.cur.dup, false)
		}
		c.cur.ackNow = true
	}
	if e.marked && !e.latched {
		e.latched = true
		c.cur.ackNow = true
	}
	e.ce = e.marked
}

// finish clears the state of the current segment.
func (e *ecnState) finish() { e.marked = false }

// echo reports whether an acknowledgement that is queued now must carry ECE.
func (e *ecnState) echo() bool {
	if e.mode != ECNClassic {
		return false
	}
	if e.isDCTCP {
		return e.ce
	}
	return e.latched
}

// feedback sets in a the marks that s reports.
func (e *ecnState) feedback(c *Conn, s *Segment, a *loss.Ack) {
	switch {
	case s.Flags&wire.SYN != 0:
	case e.mode == ECNClassic:
		a.ECE = s.Flags&wire.ECE != 0
		if a.ECE {
			c.n.ECEIn++
		}
	case e.mode == ECNAccurate:
		a.CEBytes = e.acc.feedback(c, s)
		c.n.CEBytesOut += uint64(a.CEBytes)
		if e.acc.handshakeMarked && c.una.Less(s.Ack) {
			e.acc.handshakeMarked = false
			a.CEBytes += c.emss
		}
	}
}

// onLossResult requests CWR on the next new data if loss recovery reduced the window.
func (e *ecnState) onLossResult(r *loss.Result) {
	if r.CWR && e.mode == ECNClassic {
		e.cwr = true
	}
}

// setFlags sets the ECN flags of a segment with data or FIN, or of a window or keepalive probe.
func (e *ecnState) setFlags(out *Out) {
	if e.mode == ECNAccurate {
		out.Flags |= e.acc.ace(false)
	} else if e.echo() {
		out.Flags |= wire.ECE
	}
}

// setNewDataFlags sets ECT and CWR of a segment whose bytes are sent for the first time, and adds the AccECN option if
// there is room. Retransmitted segments are sent without ECT (RFC 3168, 6.1.5) and without the option (RFC 9768,
// 3.2.3.2.2).
func (e *ecnState) setNewDataFlags(c *Conn, out *Out) {
	if e.mode == ECNOff {
		return
	}
	if e.mode == ECNAccurate && (e.acc.hasNews() || out.Seq == c.iss+1) {
		sacks := 0
		if out.Opt.Present&wire.HasSACK != 0 {
			sacks = wire.SACKLen(int(out.Opt.NSACK))
		}
		e.acc.addOption(out, c.emss-out.Payload.Len()-sacks)
		if c.nOwed == 0 && e.acc.isUrgent() {
			c.oweAck(seq.Range{}, false)
		}
	}
	if e.noECT || out.Payload.Len() == 0 {
		return
	}
	out.ECN = ECT0
	if e.cwr {
		out.Flags |= wire.CWR
		e.cwr = false
	}
}

// setPureAckFlags sets the ECN flags of a pure ACK, and adds the AccECN option.
func (e *ecnState) setPureAckFlags(out *Out, ece bool) {
	if e.mode == ECNAccurate {
		out.Flags |= e.acc.ace(out.Opt.Present&wire.HasSACK == 0)
		e.acc.addOption(out, wire.MaxOptionsLen)
	} else if ece {
		out.Flags |= wire.ECE
	}
}
