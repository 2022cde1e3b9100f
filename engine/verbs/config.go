package verbs

import (
	"cmp"
	"fmt"
	"net/netip"
	"time"

	"xwarp/mpa/startup"
)

// None sets a count to zero where zero means the default.
const None = -1

// QPConfig describes a queue pair.
type QPConfig struct {
	// PD is the protection domain of the queue pair. It is required.
	PD PD
	// SendCQ and RecvCQ are the completion queues of sends and receives. They may be the same. Both are required.
	SendCQ, RecvCQ CQ
	// SRQ is the shared receive queue, in the same domain. Nil means that the queue pair has its own receive queue.
	SRQ SRQ
	// SendDepth is the maximum number of outstanding send work requests. Zero means DefaultDepth.
	SendDepth int
	// RecvDepth is the maximum number of outstanding receives. Zero means DefaultDepth. With SRQ it is the maximum
	// number of incoming messages of this queue pair that have taken a receive and are incomplete.
	RecvDepth int
	// MaxSGE is the maximum number of scatter/gather elements of a work request. Zero means DefaultSGE.
	MaxSGE int
	// MaxInline is the maximum length of SendWR.Inline in bytes. Zero means DefaultInline; None means 0.
	MaxInline int
	// IRD is the maximum number of concurrent RDMA Reads and atomics of the peer. Zero means DefaultReadDepth; None
	// means 0.
	IRD int
	// ORD is the maximum number of concurrent RDMA Reads and atomics of this end. Zero means DefaultReadDepth; None
	// means 0.
	ORD int
	// UserData is opaque to the engine. QP.UserData returns it.
	UserData any
}

// Complete returns c with zeros replaced by defaults, and None by zero.
func (c QPConfig) Complete() QPConfig {
	c.SendDepth = cmp.Or(c.SendDepth, DefaultDepth)
	c.RecvDepth = cmp.Or(c.RecvDepth, DefaultDepth)
	c.MaxSGE = cmp.Or(c.MaxSGE, DefaultSGE)
	c.MaxInline = OrDefault(c.MaxInline, DefaultInline)
	c.IRD = OrDefault(c.IRD, DefaultReadDepth)
	c.ORD = OrDefault(c.ORD, DefaultReadDepth)
	return c
}

// OrDefault returns standard if n is zero, zero if n is None, and n otherwise.
func OrDefault(n, standard int) int {
	switch n {
	case 0:
		return standard
	case None:
		return 0
	}
	return n
}

// SRQConfig describes a shared receive queue.
type SRQConfig struct {
	// PD is the protection domain of the queue. It is required.
	PD PD
	// Depth is the maximum number of posted receives. Zero means DefaultDepth.
	Depth int
	// MaxSGE is the maximum number of scatter/gather elements of a receive. Zero means DefaultSGE.
	MaxSGE int
	// Limit is called once after each Arm, when fewer receives are posted than Arm's limit
	// (IBV_EVENT_SRQ_LIMIT_REACHED). It must not block, but may call Arm and PostRecv. Nil means no call.
	Limit func()
}

// Complete returns c with zeros replaced by defaults.
func (c SRQConfig) Complete() SRQConfig {
	c.Depth = cmp.Or(c.Depth, DefaultDepth)
	c.MaxSGE = cmp.Or(c.MaxSGE, DefaultSGE)
	return c
}

// DialConfig configures a connection made by Dial. The zero value is the usual one.
type DialConfig struct {
	// Local is the source address and port. Zero means the source address of the route, and any port.
	Local netip.AddrPort
	// TryPort is the source port that Dial tries first if Local has an address and no port. Dial ignores a TryPort
	// outside the kernel's range of ephemeral ports. Zero means none.
	TryPort uint16
	// PrivateData is sent in the MPA Request: at most 512 bytes, or 508 with revision 2. Nil means none.
	PrivateData []byte
	// MPA configures MPA for the connection. Nil means the device's configuration. A daemon's configuration may
	// restrict it.
	MPA *MPAConfig
	// Patience is how long Dial retries a refused TCP connection, for programs whose peer is about to listen, or has
	// just closed the listener of the previous connection. Because a listener that closes may still accept a
	// connection, Dial also retries once if the peer closes before its MPA Reply. Zero means no retry.
	Patience time.Duration
	// DSCP is the class of the connection's packets, 1 to 63 (RFC 2474). Zero means that of QP.SetDSCP or the device;
	// None means 0.
	DSCP int
}

// ListenConfig configures a listener and its connections. The zero value is the usual one.
type ListenConfig struct {
	// Backlog is the maximum number of connection requests waiting for Accept. Zero means DefaultBacklog.
	Backlog int `json:"backlog,omitempty"`
	// MPA configures MPA for the connections. Nil means the device's configuration. A daemon's configuration may
	// restrict it.
	MPA *MPAConfig `json:"mpa,omitempty"`
	// DSCP is the class of the packets of the connections, 1 to 63. Zero means that of the device; None means 0.
	DSCP int `json:"dscp,omitempty"`
}

// MaxDSCP is the maximum DSCP: the field has six bits.
const MaxDSCP = 63

// CheckDSCP returns an error if d is neither a DSCP nor None.
func CheckDSCP(d int) error {
	if d < None || d > MaxDSCP {
		return fmt.Errorf("%w: DSCP %d, want 0 to %d: the upper six bits of the TOS byte or traffic class", ErrInvalid,
			d, MaxDSCP)
	}
	return nil
}

// MarkerPolicy says when an endpoint asks its peer for markers.
type MarkerPolicy uint8

const (
	// MarkersMirrored makes an initiator ask for markers, and a responder only if the initiator did: many initiators,
	// such as Linux siw, otherwise close the connection.
	MarkersMirrored MarkerPolicy = iota
	// MarkersOff never asks for markers.
	MarkersOff
	// MarkersAlways makes initiators and responders ask for markers, a responder even if the initiator did not ask.
	MarkersAlways
)

// CRCPolicy says whether FPDUs have a CRC.
type CRCPolicy uint8

const (
	// CRCRequired uses a CRC in both directions.
	CRCRequired CRCPolicy = iota
	// CRCOptional omits the CRC in both directions if the peer agrees.
	CRCOptional
)

// MPAConfig configures MPA. The zero value is the usual one: revision 2, markers, and CRC in both directions.
type MPAConfig struct {
	// Role says whether to speak the RDMA Consortium's version 0 (RFC 5044, appendix C). Zero means
	// startup.NonPermissive, which does not.
	Role startup.Role
	// Revision is the highest MPA revision used. startup.RevIETF is RFC 5044 only, without IRD, ORD and the
	// peer-to-peer model. Zero means startup.RevEnhanced.
	Revision startup.Revision
	// Markers says when to ask for markers. Zero means MarkersMirrored.
	Markers MarkerPolicy
	// CRC says whether FPDUs have a CRC. Zero means CRCRequired.
	CRC CRCPolicy
	// RTR is the set of ready-to-receive messages to offer or accept. Zero means that an initiator offers the Read,
	// which every known peer accepts, and a responder accepts all.
	RTR startup.RTR
	// ClientServer selects the model in which the initiator's consumer must send first. False means the peer-to-peer
	// model.
	ClientServer bool
	// RtrFrame uses the RTR frame of the proposal that preceded RFC 6581. False means RFC 6581.
	RtrFrame bool
	// SMBD negotiates IRD and ORD with revision 1 as in [MS-SMBD]. False means no negotiation with revision 1.
	SMBD bool
	// AnyCRCError closes the connection at the first CRC error, as RFC 5044 requires. False makes TCP retransmit the
	// segment. This is impossible for acknowledged data, so the connection closes even then: for the head of an FPDU
	// that straddles segments, and for all data received over sockets.
	AnyCRCError bool
	// SingleAttempt keeps Dial from retrying without the options that the peer refused.
	SingleAttempt bool
}

// MPAWith returns the usual configuration, with MarkersOff if markers is false, and CRCOptional if crc is false.
func MPAWith(markers, crc bool) (m MPAConfig) {
	if !markers {
		m.Markers = MarkersOff
	}
	if !crc {
		m.CRC = CRCOptional
	}
	return m
}
