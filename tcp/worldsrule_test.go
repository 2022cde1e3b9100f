package tcp_test

import (
	"fmt"

	"xwarp/tcp"
	"xwarp/tcp/wire"
)

// rfc9293 is the model of a connection by RFC 9293, 3.10.7. Its numbers are relative to the initial ones.
type rfc9293 struct {
	state    tcp.State
	una, nxt int
	fin      int    // the number of our FIN, 0 for none
	irs      int    // the peer's initial number
	rcvNxt   int    // RCV.NXT
	held     []span // bytes beyond RCV.NXT
	peerFIN  *int   // number of a FIN that waits for the bytes before it, nil for none
}

type span struct{ from, to int }

// rule holds the differences between SYN-RECEIVED and the synchronized states in 3.10.7.4. Words such as "second" in
// its comments name the checks there.
type rule struct {
	reset    bool      // second: a RST at RCV.NXT must end it; if false, it may
	ours     bool      // fifth: the acknowledgement of our FIN changes the state
	finAcked tcp.State // fifth: the state after the acknowledgement of our FIN
	text     bool      // seventh: text is accepted
	finLeads tcp.State // eighth: the state after the peer's FIN
}

// rules are the rules of the states. In TIME-WAIT a RST may be ignored, as RFC 1337 proposes.
var rules = map[tcp.State]rule{
	tcp.SynReceived: {reset: true, text: true, finLeads: tcp.CloseWait},
	tcp.Established: {reset: true, text: true, finLeads: tcp.CloseWait},
	tcp.FinWait1: {reset: true, ours: true, finAcked: tcp.FinWait2, text: true,
		finLeads: tcp.Closing},
	tcp.FinWait2:  {reset: true, text: true, finLeads: tcp.TimeWait},
	tcp.CloseWait: {reset: true},
	tcp.Closing:   {reset: true, ours: true, finAcked: tcp.TimeWait},
	tcp.LastAck:   {reset: true, ours: true, finAcked: tcp.Closed},
	tcp.TimeWait:  {},
}

// outcome is one permitted effect of a segment.
type outcome struct {
	m       rfc9293
	offered int // new bytes of text
	reply   reply
}

// reply is the segment that is sent in answer.
type reply struct {
	kind replyKind
	seq  int
}

type replyKind uint8

const (
	silence replyKind = iota
	anACK             // <SEQ=SND.NXT><ACK=RCV.NXT><CTL=ACK>
	mayACK            // such an ACK, or nothing
	aRST              // <SEQ=seq><CTL=RST>
	aSYNACK           // <SEQ=ISS><ACK=RCV.NXT><CTL=SYN,ACK>
)

func (r reply) String() string {
	return fmt.Sprintf("%s %d", [...]string{"none", "ACK", "ACK or none", "RST", "SYN-ACK"}[r.kind],
		r.seq)
}

// sentSegment is a segment that the connection sent.
type sentSegment struct {
	flags            wire.Flags
	seq, ack, n, wnd int
}

// is reports whether the segments sent are the reply r.
func (r reply) is(sent []sentSegment, m *rfc9293) bool {
	if len(sent) == 0 {
		return r.kind == silence || r.kind == mayACK
	}
	s := sent[0]
	if len(sent) > 1 || s.n > 0 {
		return false
	}
	switch r.kind {
	case anACK, mayACK:
		return s.flags == fA && s.seq == m.nxt && s.ack == m.rcvNxt
	case aRST:
		return s.flags == fR && s.seq == r.seq
	case aSYNACK:
		return s.flags == fSA && s.seq == 0 && s.ack == m.rcvNxt
	}
	return false
}

// alone returns a single outcome: the model m, without text, and a reply of the given kind.
func alone(m rfc9293, kind replyKind) []outcome {
	return []outcome{{m: m, reply: reply{kind: kind}}}
}

// arrive returns the permitted outcomes when s arrives in m. edge is the end of the receive window.
func (m rfc9293) arrive(s arrival, edge int) []outcome {
	switch m.state {
	case tcp.Closed: // the layer below answers for a connection that ended
		return alone(m, silence)
	case tcp.SynSent:
		return m.synSent(s)
	}
	return m.synchronized(s, edge)
}

// synSent applies 3.10.7.3.
func (m rfc9293) synSent(s arrival) []outcome {
	ack, rst := s.flags&wire.ACK != 0, s.flags&wire.RST != 0
	switch {
	case ack && (s.ack <= 0 || s.ack > m.nxt): // first
		if rst {
			return alone(m, silence)
		}
		return []outcome{{m: m, reply: reply{aRST, s.ack}}}
	case rst && ack: // second
		m.state = tcp.Closed
		return alone(m, silence)
	case rst || s.flags&wire.SYN == 0: // fifth
		return alone(m, silence)
	}
	m.irs, m.rcvNxt = s.seq, s.seq+1 // fourth
	if !ack {
		m.state = tcp.SynReceived // text and FIN need not be kept: the peer retransmits them
		return alone(m, aSYNACK)
	}
	m.una, m.state = s.ack, tcp.Established
	all := m.text(s, m.rcvNxt+1000)
	for i := range all {
		all[i].reply.kind = anACK
	}
	return all
}

// synchronized applies 3.10.7.4.
func (m rfc9293) synchronized(s arrival, edge int) []outcome {
	rst, syn := s.flags&wire.RST != 0, s.flags&wire.SYN != 0
	if m.state == tcp.SynReceived && syn && !rst && s.seq == m.irs {
		if s.flags&wire.ACK != 0 && s.ack == m.nxt { // the other half of a simultaneous open (3.5)
			return append(m.acknowledged(s, edge), alone(m, anACK)...)
		}
		return append(alone(m, aSYNACK), alone(m, anACK)...) // our SYN-ACK was lost
	}
	if !m.acceptable(s, edge) { // first
		if rst {
			return alone(m, silence)
		}
		return alone(m, anACK)
	}
	r := rules[m.state]
	switch {
	case rst && (s.seq < m.rcvNxt || s.seq >= edge): // second, 1)
		return alone(m, silence)
	case rst && s.seq == m.rcvNxt: // second, 2)
		ended := m
		ended.state = tcp.Closed
		if r.reset {
			return alone(ended, silence)
		}
		return append(alone(ended, silence), alone(m, silence)...)
	case rst: // second, 3)
		if r.reset {
			return alone(m, anACK)
		}
		return alone(m, mayACK)
	case syn: // fourth
		return alone(m, anACK)
	case s.flags&wire.ACK == 0: // fifth
		return alone(m, silence)
	}
	return m.acknowledged(s, edge)
}

// acceptable is the test of table 6 with the extension of appendix A.2: a segment without text at the right edge is
// also acceptable, since it may carry the acknowledgement of a peer that has filled the window.
func (m rfc9293) acceptable(s arrival, edge int) bool {
	n := s.n
	for _, f := range []wire.Flags{wire.SYN, wire.FIN} {
		if s.flags&f != 0 {
			n++
		}
	}
	inside := func(at int) bool { return m.rcvNxt <= at && at < edge }
	switch {
	case n == 0 && edge == m.rcvNxt:
		return s.seq == m.rcvNxt
	case n == 0:
		return inside(s.seq) || s.seq == edge && s.flags&wire.RST == 0
	}
	return inside(s.seq) || inside(s.seq+n-1)
}

// acknowledged applies the fifth and all later checks. MAX.SND.WND is always 65535 here.
func (m rfc9293) acknowledged(s arrival, edge int) []outcome {
	if m.state == tcp.SynReceived {
		if s.ack <= m.una || s.ack > m.nxt {
			return []outcome{{m: m, reply: reply{aRST, s.ack}}}
		}
		m.state = tcp.Established
	}
	if s.ack > m.nxt || s.ack < m.una-0xffff {
		return alone(m, anACK)
	}
	m.una = max(m.una, s.ack)
	if r := rules[m.state]; r.ours && m.una > m.fin {
		if m.state = r.finAcked; m.state == tcp.Closed {
			return alone(m, silence)
		}
	}
	if r := rules[m.state]; !r.text {
		return m.afterFIN(s)
	}
	return m.text(s, edge)
}

// afterFIN applies the seventh and eighth check after the peer's FIN: text is ignored. A FIN may be acknowledged.
func (m rfc9293) afterFIN(s arrival) []outcome {
	if s.flags&wire.FIN == 0 {
		return alone(m, silence)
	}
	return alone(m, mayACK)
}

// text applies the seventh and eighth check.
func (m rfc9293) text(s arrival, edge int) []outcome {
	if s.flags&wire.SYN != 0 {
		s.seq++
	}
	from, to := max(s.seq, m.rcvNxt), min(s.seq+s.n, edge)
	o := outcome{m: m, reply: reply{kind: silence}}
	for at := from; at < to; at++ {
		if !m.has(at) {
			o.offered++
		}
	}
	switch {
	case s.n == 0:
	case s.refused: // bytes that are not kept count as never received; a duplicate acknowledgement may request them
		o.reply.kind = mayACK
	default:
		o.reply.kind = anACK
		o.m.held = append(append([]span(nil), m.held...), span{from, to})
	}
	finAt := s.seq + s.n
	fin := s.flags&wire.FIN != 0 && finAt >= m.rcvNxt && finAt < edge
	if s.n > 0 && m.peerFIN != nil && *m.peerFIN < s.seq+s.n {
		o.m.peerFIN = nil // text beyond a waiting FIN: one of the two is forged
	}
	if s.flags&wire.FIN != 0 && o.reply.kind == silence {
		o.reply.kind = mayACK // a FIN that waits, or that lies beyond the window
	}
	o.m.advance()
	if !fin {
		return []outcome{o.closed(o.m.peerFIN)}
	}
	if finAt <= o.m.rcvNxt && s.seq <= m.rcvNxt { // in order: it takes effect, whatever is held beyond it
		o.m.rcvNxt = finAt
		return []outcome{o.closed(&finAt)}
	}
	// A FIN behind a hole may be held, or dropped until the peer repeats it.
	keep := o
	keep.m.peerFIN = &finAt
	return []outcome{keep.closed(&finAt), o.closed(o.m.peerFIN)}
}

func (m *rfc9293) has(at int) bool {
	for _, h := range m.held {
		if h.from <= at && at < h.to {
			return true
		}
	}
	return false
}

// advance moves RCV.NXT over the held bytes.
func (m *rfc9293) advance() {
	for m.has(m.rcvNxt) && (m.peerFIN == nil || m.rcvNxt != *m.peerFIN) {
		m.rcvNxt++
	}
}

// closed returns o after the peer's FIN, if RCV.NXT has reached its number fin, otherwise o unchanged.
func (o outcome) closed(fin *int) outcome {
	if fin == nil || *fin != o.m.rcvNxt {
		return o
	}
	o.m.rcvNxt++
	o.m.held, o.m.peerFIN = nil, nil
	o.reply.kind = anACK
	o.m.state = rules[o.m.state].finLeads
	return o
}
