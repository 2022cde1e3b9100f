package engine

import "xwarp/mpa/startup"

// MPAConfig is what an endpoint wants of MPA. The zero value is the usual one: revision 2, markers and CRC both ways.
type MPAConfig struct {
	Role      startup.Role
	Revision1 bool // RFC 5044 only: no IRD and ORD, no peer-to-peer
	NoMarkers bool // do not ask the peer for markers
	// InsistMarkers makes a responder ask for markers also of an initiator that does not: many, Linux siw
	// among them, then close the connection.
	InsistMarkers bool
	NoCRC         bool // give up the CRC if the peer does too
	// RTR is the set of ready-to-receive messages that are offered or taken. With 0 an initiator offers the
	// Read, which every known peer takes, and a responder takes all.
	RTR startup.RTR
	// NoPeerToPeer is the client-server model: the initiator's consumer must be the first to send.
	NoPeerToPeer bool
	RtrFrame     bool // the proposal that came before RFC 6581
	SMBD         bool // [MS-SMBD] IRD and ORD with revision 1
	// AnyCRCError makes the first CRC failure end the connection, as RFC 5044 has it, instead of having TCP
	// send again. What was acknowledged cannot be sent again: the head of an FPDU that straddles segments,
	// and all that a socket gives.
	AnyCRCError bool
	// NoRetry keeps Dial from trying again without what the peer refused.
	NoRetry bool
}

// initiator and responder return the start-up configuration of the two sides.
func (m *MPAConfig) initiator(private []byte, ird, ord int) startup.Config {
	c := m.responder()
	c.PrivateData, c.IRD, c.ORD = private, uint16(ird), uint16(ord)
	if c.RTR == 0 {
		c.RTR = startup.RTRRead
	}
	if m.NoPeerToPeer {
		c.RTR = 0
	}
	return c
}

func (m *MPAConfig) responder() startup.Config {
	c := startup.Config{
		Role: m.Role, Markers: !m.NoMarkers, MirrorMarkers: !m.InsistMarkers, NoCRC: m.NoCRC,
		RTR: m.RTR, RtrFrame: m.RtrFrame, SMBD: m.SMBD,
	}
	if m.Revision1 {
		c.Revision = startup.RevIETF
	}
	return c
}
