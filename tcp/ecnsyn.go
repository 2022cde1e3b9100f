package tcp

import (
	"xwarp/tcp/cc"
	"xwarp/tcp/wire"
)

const (
	// ecnSYNs is the number of SYNs that request ECN. Later ones do not, because the path may drop SYNs with ECN bits
	// (RFC 3168, 6.1.1.1; RFC 9768, 3.1.4.1).
	ecnSYNs = 2
	// ecnSYNACKs is the number of SYN-ACKs that grant the feedback of RFC 9768. If they are not acknowledged, later
	// ones have no ECN bits. Only the first has the AccECN option (RFC 9768, 3.2.3.2.2).
	ecnSYNACKs = 2
)

// ecnAsked returns the mode that a SYN with flags f requests, as far as c grants it: ECNOff with ECNOff, and never more
// than RFC 3168 with ECNClassic. Otherwise unknown combinations request accurate feedback (RFC 9768, 3.1.3).
func (c *Config) ecnAsked(f wire.Flags) ECNMode {
	ace := aceOf(f)
	switch {
	case ace == 0, c.ECN == ECNOff:
		return ECNOff
	case c.ECN == ECNClassic:
		if ace&aceClassicSYN != aceClassicSYN {
			return ECNOff
		}
		return ECNClassic
	case ace == aceClassicSYN:
		return ECNClassic
	}
	return ECNAccurate
}

// ecnGranted returns the mode that a SYN-ACK with ACE field ace grants to the request of c (RFC 3168, 6.1.1; RFC 9768,
// table 2 and 3.1.3).
func (c *Config) ecnGranted(ace uint8) ECNMode {
	switch {
	case c.ECN != ECNClassic && c.ECN != ECNAccurate:
	case ace == aceClassicSYNACK:
		return ECNClassic
	case c.ECN == ECNAccurate && ace != 0 && ace != aceAll: // a broken peer reflects all bits
		return ECNAccurate
	}
	return ECNOff
}

// askedSet is the set of modes that the SYNs of one handshake requested.
type askedSet uint8

func (a *askedSet) add(m ECNMode)               { *a |= 1 << m }
func (a askedSet) has(m ECNMode) bool           { return a>>m&1 != 0 }
func (a askedSet) isMixed() bool                { return a.has(ECNClassic) && a.has(ECNAccurate) }
func (a askedSet) conflictsWith(m ECNMode) bool { return m != ECNOff && a.has(ECNOff) }

// negotiate sets the mode from the ECN bits of the peer's first SYN or SYN-ACK. Later ones do not change it (RFC 9768,
// 3.1.5).
func (e *ecnState) negotiate(c *Conn, s *Segment) {
	e.isDCTCP = c.cfg.Loss.CC.Algorithm == cc.DCTCP
	plain := !c.passive && c.timer.synTries > ecnSYNs // a SYN without ECN was sent
	if s.Flags&wire.ACK == 0 {
		e.mode = c.cfg.ecnAsked(s.Flags)
		e.asked.add(e.mode)
		e.noECT = plain && e.mode != ECNOff
		if e.mode == ECNAccurate {
			e.acc.init()
			e.acc.first = s.ECN
		}
		return
	}
	ace := aceOf(s.Flags)
	switch e.mode = c.cfg.ecnGranted(ace); e.mode {
	case ECNClassic:
		e.noECT = plain // RFC 3168, 6.1.1; with RFC 9768 ECT is allowed: the server certainly uses that mode
	case ECNAccurate:
		e.acc.init()
		e.acc.synACK(s.ECN, true)
		e.onSYNFeedback(ace)
	}
}

// onRepeatedSYN processes the ECN bits of a repeated SYN. It returns false if one SYN requested RFC 3168 and another
// one RFC 9768. The connection must then be reset, because the peer cannot know which mode applies (RFC 9768, 3.1.5).
func (e *ecnState) onRepeatedSYN(c *Conn, s *Segment) bool {
	e.asked.add(c.cfg.ecnAsked(s.Flags))
	e.acc.first = s.ECN
	e.noECT = e.noECT || e.asked.conflictsWith(e.mode)
	return !e.asked.isMixed()
}

// onRepeatedSYNACK processes the ECN bits of a SYN-ACK that is repeated because our acknowledgement was lost. CE counts
// regardless of its TCP flags (RFC 9768, 3.2.2.2).
func (e *ecnState) onRepeatedSYNACK(c *Conn, s *Segment) {
	if e.mode == ECNAccurate && !c.passive && s.Seq == c.irs && s.Ack == c.iss+1 {
		e.acc.synACK(s.ECN, c.cfg.ecnGranted(aceOf(s.Flags)) == ECNAccurate && c.nOwed > 0)
	}
}

// onSYNFeedback processes ace, in which the peer reports the ECN bits with which our SYN or SYN-ACK arrived. These were
// sent without ECT: any other value was set on the path, and later segments are sent without ECT (RFC 9768, 3.2.2.3).
// CE still counts as a mark.
func (e *ecnState) onSYNFeedback(ace uint8) {
	switch ace {
	case aceECT1, aceECT0, aceCE:
		e.noECT = true
	}
	e.acc.handshakeMarked = ace == aceCE
}

// setSYNFlags sets the ECN flags of a SYN or SYN-ACK, and adds the AccECN option to the first SYN-ACK.
func (e *ecnState) setSYNFlags(c *Conn, out *Out) {
	if out.Flags&wire.ACK != 0 {
		switch {
		case e.mode == ECNClassic:
			out.Flags |= wire.ECE
		case e.mode == ECNAccurate && !e.plainSYNACK:
			out.Flags |= aceFlags(handshakeACE(e.acc.first))
			if !out.Retransmit {
				e.acc.option(&out.Opt, wire.HasAccECN0, 3)
			}
		}
		return
	}
	if c.timer.synTries > ecnSYNs {
		return
	}
	switch c.cfg.ECN {
	case ECNClassic:
		out.Flags |= ecnSetup
	case ECNAccurate:
		out.Flags |= ecnSetup | wire.AE
	}
}
