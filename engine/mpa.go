package engine

import (
	"xwarp/engine/verbs"
	"xwarp/mpa/startup"
)

// initiator and responder return the start-up configuration of the two sides.
func initiator(m *verbs.MPAConfig, private []byte, ird, ord int) startup.Config {
	c := responder(m)
	c.PrivateData, c.IRD, c.ORD = private, uint16(ird), uint16(ord)
	if c.RTR == 0 {
		c.RTR = startup.RTRRead
	}
	if m.NoPeerToPeer {
		c.RTR = 0
	}
	return c
}

func responder(m *verbs.MPAConfig) startup.Config {
	c := startup.Config{
		Role: m.Role, Markers: !m.NoMarkers, MirrorMarkers: !m.InsistMarkers, NoCRC: m.NoCRC,
		RTR: m.RTR, RtrFrame: m.RtrFrame, SMBD: m.SMBD,
	}
	if m.Revision1 {
		c.Revision = startup.RevIETF
	}
	return c
}
