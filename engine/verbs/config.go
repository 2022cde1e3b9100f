package verbs

import (
	"cmp"
	"net/netip"
	"time"

	"xwarp/mpa/startup"
)

// None is the value of counts that are to be zero, where zero means the default.
const None = -1

// QPConfig describes a queue pair. Zero numbers mean the defaults in brackets.
type QPConfig struct {
	PD             PD
	SendCQ, RecvCQ CQ  // may be the same
	SRQ            SRQ // that receives are taken from, of the same domain; nil: the queue pair has its own
	SendDepth      int // work requests outstanding [DefaultDepth]
	// RecvDepth is the same of receives [DefaultDepth]. With SRQ it bounds what the peer of one queue pair may
	// hold of it: the messages that have begun to arrive and are not complete.
	RecvDepth int
	MaxSGE    int // pieces of a work request [DefaultSGE]
	MaxInline int // bytes of SendWR.Inline, or None [DefaultInline]
	IRD       int // RDMA Reads and atomics of the peer at a time, or None [DefaultReadDepth]
	ORD       int // our own at a time, or None [DefaultReadDepth]
	// UserData is the consumer's own. QP.UserData returns it.
	UserData any
}

// Complete returns c with the defaults in the place of zeros, and zeros in the place of None.
func (c QPConfig) Complete() QPConfig {
	c.SendDepth = cmp.Or(c.SendDepth, DefaultDepth)
	c.RecvDepth = cmp.Or(c.RecvDepth, DefaultDepth)
	c.MaxSGE = cmp.Or(c.MaxSGE, DefaultSGE)
	c.MaxInline = OrDefault(c.MaxInline, DefaultInline)
	c.IRD = OrDefault(c.IRD, DefaultReadDepth)
	c.ORD = OrDefault(c.ORD, DefaultReadDepth)
	return c
}

// OrDefault returns n, standard for zero, and zero for None.
func OrDefault(n, standard int) int {
	switch n {
	case 0:
		return standard
	case None:
		return 0
	}
	return n
}

// SRQConfig describes a shared receive queue. Zero numbers mean the defaults in brackets.
type SRQConfig struct {
	PD     PD
	Depth  int // receives that wait [DefaultDepth]
	MaxSGE int // pieces of a receive [DefaultSGE]
	// Limit is called, once for each Arm, when fewer receives wait than it said
	// (IBV_EVENT_SRQ_LIMIT_REACHED). It must not block, and may call Arm and PostRecv. nil: nobody asks.
	Limit func()
}

// Complete returns c with the defaults in the place of zeros.
func (c SRQConfig) Complete() SRQConfig {
	c.Depth = cmp.Or(c.Depth, DefaultDepth)
	c.MaxSGE = cmp.Or(c.MaxSGE, DefaultSGE)
	return c
}

// DialConfig describes one connection that Dial makes. The zero value is usual.
type DialConfig struct {
	// Local is the source of the connection. Zero means the address that the route says, and any port.
	Local netip.AddrPort
	// PrivateData is that of the MPA Request: at most 512 bytes, 508 with revision 2.
	PrivateData []byte
	// MPA is what is asked of MPA. Nil means what the device asks. A daemon's configuration may allow only a part
	// of it.
	MPA *MPAConfig
	// Patience is for how long a port at which nobody listens is tried again: some programs connect
	// while their peer is about to listen, or has just closed the listener of its connection before. For the
	// latter a connection that closes before MPA's Reply is tried again once with the same Request.
	Patience time.Duration
}

// ListenConfig describes a listener and its connections. The zero value is usual.
type ListenConfig struct {
	// Backlog is the maximum number of connection requests that wait for Accept. Zero means DefaultBacklog.
	Backlog int
	// MPA is what is asked of MPA. Nil means what the device asks. A daemon's configuration may allow only a part
	// of it.
	MPA *MPAConfig
}

// MarkerPolicy says when an endpoint asks its peer for markers.
type MarkerPolicy uint8

const (
	// MarkersMirrored has an initiator ask for markers, and a responder do so if the initiator did: many initiators,
	// Linux siw among them, close the connection otherwise.
	MarkersMirrored MarkerPolicy = iota
	// MarkersOff has neither ask for markers.
	MarkersOff
	// MarkersAlways has a responder ask for markers also if the initiator did not.
	MarkersAlways
)

// CRCPolicy says whether FPDUs have a CRC.
type CRCPolicy uint8

const (
	// CRCRequired has every FPDU have a CRC, in both directions.
	CRCRequired CRCPolicy = iota
	// CRCOptional gives up the CRC if the peer does so too.
	CRCOptional
)

// MPAConfig is what an endpoint wants of MPA. The zero value is the usual one: revision 2, markers and CRC both ways.
type MPAConfig struct {
	Role startup.Role
	// Revision is the highest revision used. startup.RevIETF is RFC 5044 only: no IRD and ORD, no peer-to-peer model.
	// Zero means startup.RevEnhanced.
	Revision startup.Revision
	// Markers is when markers are asked for. Zero means MarkersMirrored.
	Markers MarkerPolicy
	// CRC is whether FPDUs have a CRC. Zero means CRCRequired.
	CRC CRCPolicy
	// RTR is the set of ready-to-receive messages that are offered or taken. With 0 an initiator offers the Read,
	// which every known peer takes, and a responder takes all.
	RTR startup.RTR
	// ClientServer is the model in which the initiator's consumer must be the first to send. False means the
	// peer-to-peer model.
	ClientServer bool
	RtrFrame     bool // the proposal that came before RFC 6581
	SMBD         bool // [MS-SMBD] IRD and ORD with revision 1
	// AnyCRCError makes the first CRC failure end the connection, as RFC 5044 has it, instead of having TCP send
	// again. What was acknowledged cannot be sent again: the head of an FPDU that straddles segments, and all that
	// a socket gives.
	AnyCRCError bool
	// SingleAttempt keeps Dial from trying again without what the peer refused.
	SingleAttempt bool
}

// MPAWith returns the usual configuration, with MarkersOff unless markers is set, and CRCOptional unless crc is.
func MPAWith(markers, crc bool) (m MPAConfig) {
	if !markers {
		m.Markers = MarkersOff
	}
	if !crc {
		m.CRC = CRCOptional
	}
	return m
}
