package tcp

import "xwarp/tcp/wire"

// The ACE field is AE, CWR and ECE read as one number (RFC 9768, 3.2.2). In SYNs and SYN-ACKs it negotiates ECN. The
// ACK of a SYN-ACK echoes in it the ECN bits of the SYN-ACK's IP header. Afterwards it counts the packets that arrived
// with CE.
const (
	aceAll           = 7 // SYN: requests RFC 9768
	aceClassicSYN    = 3 // SYN: requests RFC 3168
	aceClassicSYNACK = 1
	aceNotECT        = 2 // SYN-ACK and its ACK: ECN bits of the packet that they answer
	aceECT1          = 3
	aceECT0          = 4
	aceCE            = 6
	aceStart         = 5 // initial value of the counters r.cep and s.cep
	aceZeroed        = 0
)

func aceOf(f wire.Flags) (a uint8) {
	if f&wire.AE != 0 {
		a |= 4
	}
	if f&wire.CWR != 0 {
		a |= 2
	}
	if f&wire.ECE != 0 {
		a |= 1
	}
	return a
}

func aceFlags(a uint8) (f wire.Flags) {
	if a&4 != 0 {
		f |= wire.AE
	}
	if a&2 != 0 {
		f |= wire.CWR
	}
	if a&1 != 0 {
		f |= wire.ECE
	}
	return f
}

// handshakeACE returns the ACE field that echoes the ECN bits of a SYN or SYN-ACK (RFC 9768, tables 2 and 3).
func handshakeACE(e ECN) uint8 { return [4]uint8{aceNotECT, aceECT1, aceECT0, aceCE}[e&3] }

// accECN is the state of accurate ECN feedback (RFC 9768).
type accECN struct {
	first         ECN  // ECN bits of the peer's latest SYN or SYN-ACK
	echoDue       bool // the next pure ACK acknowledges a SYN-ACK and echoes its ECN bits
	countedSYNACK bool // cep includes a SYN-ACK with CE

	// Received by this side: packets with CE, and bytes with CE, ECT(0) and ECT(1).
	cep             uint32
	ceb, e0b, e1b   uint32
	unreportedMarks int // packets with CE since the last acknowledgement was sent or queued

	sent optionSent

	// Received by the peer, according to its feedback.
	sawFirst        bool
	ignoresPeer     bool // the peer's counters are ignored
	handshakeMarked bool // our SYN or SYN-ACK arrived with CE, and the window is not reduced for it yet
	peerCEP         uint32
	peerCEB         uint32
	byOption        bool // the peer sends the option with each change of its CE counters
	guessed         int  // bytes returned by feedback for the ACE field alone since the last option
	// These two apply to the time since the last option with the CE counter.
	sinceOption uint32 // packets with CE reported by the ACE field
	wrapped     bool   // the ACE field may have wrapped
}

// init sets the initial values of the counters (RFC 9768, 3.2.1). They do not count CE on a SYN (3.2.2.2).
func (a *accECN) init() {
	*a = accECN{cep: aceStart, e0b: 1, e1b: 1, peerCEP: aceStart}
	a.sent.counters = a.counters()
}

// synACK counts CE on a SYN-ACK, at most once (RFC 9768, 3.2.2.2). grants reports that the SYN-ACK grants accurate
// feedback: then its pure ACK echoes its ECN bits (3.2.2.1).
func (a *accECN) synACK(e ECN, grants bool) {
	if grants {
		a.first, a.echoDue = e, true
	}
	if e == CE && !a.countedSYNACK {
		a.countedSYNACK = true
		a.cep++
	}
}

// count counts a received segment by its ECN bits (RFC 9768, 3.2.2.5 and 3.2.3.1).
func (a *accECN) count(s *Segment) {
	n := uint32(s.Len)
	switch s.ECN {
	case CE:
		a.cep++
		a.ceb += n
		a.unreportedMarks++
	case ECT0:
		a.e0b += n
	case ECT1:
		a.e1b += n
	}
}

// ace returns the ACE field of an outgoing segment without SYN. pure reports that it is a pure ACK, which may echo the
// ECN bits of a SYN-ACK.
func (a *accECN) ace(pure bool) wire.Flags {
	if a.echoDue && pure {
		a.echoDue = false
		return aceFlags(handshakeACE(a.first))
	}
	return aceFlags(uint8(a.cep & 7))
}

// feedback returns the bytes that s newly reports as marked. The option has the exact number. The ACE field counts
// packets modulo 8: without options, feedback assumes the largest likely number (RFC 9768, appendix A.2). The next
// option corrects this estimate.
func (a *accECN) feedback(c *Conn, s *Segment) int {
	ace := uint32(aceOf(s.Flags))
	if !a.sawFirst {
		a.sawFirst = true
		if c.passive && s.size() == 0 && s.Opt.Present&wire.HasSACK == 0 {
			a.handshakeACK(c, uint8(ace))
			return 0
		}
	}
	acked := s.Ack.Diff(c.una)
	if a.ignoresPeer || acked < 0 { // acked < 0: s is older than another one (RFC 9768, 3.2.2.2)
		return 0
	}
	marked, option := a.fromOption(s)
	sack := s.Opt.Present&wire.HasSACK != 0
	if acked == 0 && !sack && marked == 0 { // s may be older than another one
		return 0
	}
	d := (ace - a.peerCEP) & 7
	if option || d > 0 && !sack { // without SACK blocks the option fits, so if it is missing the path may drop it
		a.byOption = option
	}
	if packets := uint32(acked / max(c.emss, 1)); packets > 7 && !a.byOption && d != 0 {
		d = packets - (packets-d)&7
	}
	a.peerCEP += d
	a.sinceOption += d
	a.wrapped = a.wrapped || sack || acked == 0 || c.tx.Transmissions(s.Ack, 8) >= 8
	if !option {
		n := min(int(d)*c.emss, max(acked, c.emss))
		a.guessed += n
		return n
	}
	a.reconcile(c, marked)
	n := max(0, marked-a.guessed)
	a.guessed = 0
	return n
}

// reconcile compares marked, the bytes that an option newly reports as marked, with the marked packets that the ACE
// field reported since the previous option. Marked bytes without a marked packet, when the field cannot have wrapped,
// mean that the path changes the feedback: nothing more is sent as ECN-capable (RFC 9768, 3.2.3.2.5).
func (a *accECN) reconcile(c *Conn, marked int) {
	if marked > 0 && a.sinceOption == 0 && !a.wrapped {
		c.ecn.noECT = true
	}
	a.sinceOption, a.wrapped = 0, false
}

// handshakeACK processes the ACE field of the pure ACK that ends a passive handshake (RFC 9768, table 4). Zero means
// that the client does not use accurate feedback, or that the path clears the bits: this end then sends nothing as
// ECN-capable, and ignores the client's counters.
func (a *accECN) handshakeACK(c *Conn, ace uint8) {
	switch ace {
	case aceZeroed:
		c.ecn.noECT, a.ignoresPeer = true, true
	case aceCE:
		a.peerCEP++
	}
	c.ecn.onSYNFeedback(ace)
}

// fromOption returns the increase of the CE byte counter since the previous option. ok is false if s does not carry the
// counter.
func (a *accECN) fromOption(s *Segment) (n int, ok bool) {
	if s.Opt.Present&(wire.HasAccECN0|wire.HasAccECN1) == 0 || s.Opt.NAccECN < 2 {
		return 0, false
	}
	d := (s.Opt.AccECN[1] - a.peerCEB) & 0xffffff
	if d >= 1<<23 { // an older acknowledgement
		return 0, true
	}
	a.peerCEB += d
	return int(d), true
}
