package tcp

import "xwarp/tcp/wire"

// The ACE field is AE, CWR and ECE read as one number (RFC 9768, 3.2.2). In SYNs and SYN-ACKs it negotiates,
// in the last segment of the handshake it echoes the SYN-ACK's IP bits, afterwards it counts packets that
// arrived with CE.
const (
	aceAll           = 7 // SYN: RFC 9768 is asked for
	aceClassicSYN    = 3 // SYN: requests RFC 3168
	aceClassicSYNACK = 1
	aceNotECT        = 2 // SYN-ACK and its ACK: the IP bits of the packet that they answer
	aceECT1          = 3
	aceECT0          = 4
	aceCE            = 6
	aceStart         = 5 // r.cep and s.cep begin with it
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

// handshakeACE encodes the IP bits of a SYN or SYN-ACK (RFC 9768, tables 2 and 3).
func handshakeACE(e ECN) uint8 { return [4]uint8{aceNotECT, aceECT1, aceECT0, aceCE}[e&3] }

// accECN is RFC 9768's state.
type accECN struct {
	first         ECN  // IP bits of the peer's latest SYN or SYN-ACK
	echoDue       bool // the next pure ACK acknowledges a SYN-ACK and echoes its IP bits
	countedSYNACK bool // a SYN-ACK with CE is in cep

	// Received by this side: packets with CE, and bytes by their IP bits.
	cep             uint32
	ceb, e0b, e1b   uint32
	unreportedMarks int // packets with CE since an acknowledgement was sent or owed

	sent optionSent

	// Received by the peer according to its feedback.
	sawFirst        bool
	ignoresPeer     bool // the peer's counters are ignored
	handshakeMarked bool // our SYN or SYN-ACK arrived with CE, not yet reacted to
	peerCEP         uint32
	peerCEB         uint32
	byOption        bool // the option comes with every change of the CE counters
	guessed         int  // bytes reported by the field alone since the last option
	// Since the last option with the CE counter:
	sinceOption uint32 // packets reported by the field
	wrapped     bool   // the field may have wrapped
}

// init begins the counters (RFC 9768, 3.2.1). CE on a SYN is in none of them (3.2.2.2).
func (a *accECN) init() {
	*a = accECN{cep: aceStart, e0b: 1, e1b: 1, peerCEP: aceStart}
	a.sent.counters = a.counters()
}

// synACK counts CE on a SYN-ACK, at most once (RFC 9768, 3.2.2.2). grants: the SYN-ACK has the flags of accurate
// feedback, so its pure ACK echoes its IP bits (3.2.2.1).
func (a *accECN) synACK(e ECN, grants bool) {
	if grants {
		a.first, a.echoDue = e, true
	}
	if e == CE && !a.countedSYNACK {
		a.countedSYNACK = true
		a.cep++
	}
}

// count takes the IP bits of a segment that arrived (RFC 9768, 3.2.2.5 and 3.2.3.1).
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

// ace is the field of an outgoing segment without SYN; pure says that it is nothing but an ACK.
func (a *accECN) ace(pure bool) wire.Flags {
	if a.echoDue && pure {
		a.echoDue = false
		return aceFlags(handshakeACE(a.first))
	}
	return aceFlags(uint8(a.cep & 7))
}

// feedback returns the bytes that s newly reports as marked. The option says it exactly. The ACE field counts
// packets modulo 8: without options, the largest likely number is taken (RFC 9768, appendix A.2). What the field
// alone says is corrected by the next option.
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
	if a.ignoresPeer || acked < 0 { // superseded: RFC 9768, 3.2.2.2
		return 0
	}
	marked, option := a.fromOption(s)
	sack := s.Opt.Present&wire.HasSACK != 0
	if acked == 0 && !sack && marked == 0 { // perhaps superseded
		return 0
	}
	d := (ace - a.peerCEP) & 7
	if option || d > 0 && !sack { // without SACK blocks there is room for the option: the path may drop it now
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

// reconcile compares the bytes newly reported as marked by an option with the marked packets that the field reported
// since the previous option. Marked bytes without a marked packet, when the field cannot have wrapped, mean that the
// path changes the feedback: nothing more is sent as ECN-capable (RFC 9768, 3.2.3.2.5).
func (a *accECN) reconcile(c *Conn, marked int) {
	if marked > 0 && a.sinceOption == 0 && !a.wrapped {
		c.ecn.noECT = true
	}
	a.sinceOption, a.wrapped = 0, false
}

// handshakeACK takes the field of the pure ACK that ends a passive handshake (RFC 9768, table 4). Zero is a
// client that is not in this mode, or a path that clears the bits.
func (a *accECN) handshakeACK(c *Conn, ace uint8) {
	switch ace {
	case aceZeroed:
		c.ecn.noECT, a.ignoresPeer = true, true
	case aceCE:
		a.peerCEP++
	}
	c.ecn.onSYNFeedback(ace)
}

// fromOption returns by how much the CE byte counter moved since the option before, when s carries it.
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
