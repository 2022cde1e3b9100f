package verbs

import (
	"cmp"
	"net/netip"
	"time"

	"xwarp/mpa/startup"
)

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
	MaxInline int // bytes of SendWR.Inline [DefaultInline]; negative: none
	IRD       int // RDMA Reads and atomics of the peer at a time [DefaultReadDepth]; negative: none
	ORD       int // our own at a time [DefaultReadDepth]; negative: none
	Context   any // the consumer's own, see QP.Context
}

// Complete returns c with the defaults in the place of zeros, and zeros in the place of numbers that mean none.
func (c QPConfig) Complete() QPConfig {
	c.SendDepth = cmp.Or(c.SendDepth, DefaultDepth)
	c.RecvDepth = cmp.Or(c.RecvDepth, DefaultDepth)
	c.MaxSGE = cmp.Or(c.MaxSGE, DefaultSGE)
	c.MaxInline = max(0, cmp.Or(c.MaxInline, DefaultInline))
	c.IRD = max(0, cmp.Or(c.IRD, DefaultReadDepth))
	c.ORD = max(0, cmp.Or(c.ORD, DefaultReadDepth))
	return c
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

// ConnConfig describes one connection or the connections of one listener.
type ConnConfig struct {
	Local       netip.AddrPort // source of an active connection; zero: what the route says, and any port
	PrivateData []byte         // of the MPA Request; at most 512 bytes, 508 with revision 2
	// MPA is what is asked of MPA; nil: what the device asks. A daemon's configuration may allow only a part of it.
	MPA *MPAConfig
	// Patience is for how long a port at which nobody listens is tried again: some programs connect
	// while their peer is about to listen, or has just closed the listener of its connection before. For the
	// latter a connection that closes before MPA's Reply is tried again once with the same Request.
	Patience time.Duration
}

// MPAConfig is what an endpoint wants of MPA. The zero value is the usual one: revision 2, markers and CRC both ways.
type MPAConfig struct {
	Role      startup.Role
	Revision1 bool // RFC 5044 only: no IRD and ORD, no peer-to-peer
	NoMarkers bool // do not ask the peer for markers
	// InsistMarkers makes a responder ask for markers also of an initiator that does not: many, Linux siw among
	// them, then close the connection.
	InsistMarkers bool
	NoCRC         bool // give up the CRC if the peer does too
	// RTR is the set of ready-to-receive messages that are offered or taken. With 0 an initiator offers the Read,
	// which every known peer takes, and a responder takes all.
	RTR startup.RTR
	// NoPeerToPeer is the client-server model: the initiator's consumer must be the first to send.
	NoPeerToPeer bool
	RtrFrame     bool // the proposal that came before RFC 6581
	SMBD         bool // [MS-SMBD] IRD and ORD with revision 1
	// AnyCRCError makes the first CRC failure end the connection, as RFC 5044 has it, instead of having TCP send
	// again. What was acknowledged cannot be sent again: the head of an FPDU that straddles segments, and all that
	// a socket gives.
	AnyCRCError bool
	// NoRetry keeps Dial from trying again without what the peer refused.
	NoRetry bool
}
