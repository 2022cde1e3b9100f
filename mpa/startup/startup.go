// Package startup implements the start-up exchange of MPA: Request and Reply of RFC 5044, 7.1, with the IRD, ORD and
// ready-to-receive messages of RFC 6581. The caller passes the bytes of the stream to an Initiator or a Responder until
// it has Params. FPDUs begin with the next byte of either direction; package mpa handles them.
//
// Nothing here has a goroutine, a lock, a clock or I/O.
package startup

import (
	"fmt"

	"xwarp/mpa"
	"xwarp/mpa/ulpdu"
)

// Revision is the MPA revision of a start-up frame.
type Revision uint8

const (
	RevRDMAC    Revision = 0 // RDMA Consortium
	RevIETF     Revision = 1 // RFC 5044
	RevEnhanced Revision = 2 // RFC 6581
)

// Role is how an endpoint treats RDMA Consortium peers (RFC 5044, appendix C).
type Role uint8

const (
	NonPermissive Role = iota // IETF only
	Permissive                // IETF, falls back to version 0
	RDMAC                     // version 0 only
)

// RTR is a set of ready-to-receive messages (RFC 6581, 4.3 and 9.2). They have no payload; the initiator sends one of
// them first. In this package a field RTRs holds a set, a field RTR one message or none.
type RTR uint8

const (
	RTRSend  RTR = 1 << iota // zero-length Send
	RTRWrite                 // zero-length RDMA Write
	RTRRead                  // zero-length RDMA Read Request

	allRTR = RTRSend | RTRWrite | RTRRead
)

// preferred returns the message of t that most peers understand: Read, then Write, then Send.
func (t RTR) preferred() RTR {
	for _, r := range [...]RTR{RTRRead, RTRWrite, RTRSend} {
		if t&r != 0 {
			return r
		}
	}
	return 0
}

// NotNegotiated as IRD or ORD leaves the value to the consumers (RFC 6581, 9.1).
const NotNegotiated = 0x3fff

// Config configures one endpoint.
type Config struct {
	Role Role
	// Revision is the highest revision used, RevIETF or RevEnhanced. Zero means RevEnhanced. The role RDMAC uses
	// RevRDMAC.
	Revision Revision
	// Markers asks for markers in the stream that this endpoint receives. Version 0 always has markers.
	Markers bool
	// MirrorMarkers makes a responder ask for markers only if the initiator asked for them too. Most initiators do not
	// implement markers. Such an initiator treats the M bit of a Reply as a refusal, and a responder cannot try again.
	MirrorMarkers bool
	// LongFPDUs offers, with RevEnhanced, FPDUs longer than a segment in either direction. It uses the reserved bit
	// that Linux's soft-iWARP uses for this. RFC 5044 keeps an FPDU within one segment, for receivers that place each
	// segment by itself.
	LongFPDUs bool
	// NoCRC turns the CRC off if the peer does too. Only an administrator may set it.
	NoCRC bool
	// PrivateData is the initiator's private data: at most 512 bytes, four less with RevEnhanced, eight less with SMBD.
	PrivateData []byte
	// IRD and ORD are the numbers of RDMA Reads that this endpoint accepts and sends at a time, at most NotNegotiated.
	// A responder's are in its Answer.
	IRD, ORD uint16
	// RTRs is the set of RTR messages that this endpoint can send or accept. For an initiator, zero means the
	// client-server model, in which the connecting consumer sends first. For a responder, zero means all.
	RTRs RTR
	// RtrFrame enables the proposal that preceded RFC 6581: a third start-up frame, with RevIETF only.
	RtrFrame bool
	// SMBD puts the IRD and ORD of [MS-SMBD] in front of the private data of RevIETF, and reads the peer's there if it
	// sends them.
	SMBD bool
}

// check returns an error that names the wrong field.
func (c *Config) check() error {
	switch {
	case c.Role > RDMAC:
		return fmt.Errorf("mpa: invalid role %d", c.Role)
	case c.Revision > RevEnhanced:
		return fmt.Errorf("mpa: invalid revision %d", c.Revision)
	case c.IRD > NotNegotiated, c.ORD > NotNegotiated:
		return fmt.Errorf("mpa: IRD %d and ORD %d must be at most %d", c.IRD, c.ORD, NotNegotiated)
	case c.RTRs&^allRTR != 0:
		return fmt.Errorf("mpa: invalid RTR set %#x", uint8(c.RTRs))
	}
	return nil
}

// revision returns the revision of an initiator's Request, and the highest that a responder accepts.
func (c *Config) revision() Revision {
	switch {
	case c.Role == RDMAC:
		return RevRDMAC
	case c.Revision == 0:
		return RevEnhanced
	}
	return c.Revision
}

// limitData returns b if it fits a frame. b is a header, followed by own bytes of the consumer's private data.
func limitData(b []byte, own int) ([]byte, error) {
	if len(b) > MaxPrivateData {
		return nil, fmt.Errorf("mpa: %d bytes of private data exceed the maximum of %d", own,
			MaxPrivateData-(len(b)-own))
	}
	return b, nil
}

// Params is the agreement of the two endpoints.
type Params struct {
	Revision  Revision    // of the peer's frame
	Version   uint8       // of DDP and RDMAP: 1, or 0 for the RDMA Consortium's
	Send      mpa.Framing // of the stream that this endpoint sends
	Receive   mpa.Framing
	LongFPDUs bool // both ends offered them
	// IRD and ORD of this endpoint: the result of the exchange with Negotiated, otherwise those of its Config or
	// Answer.
	IRD, ORD uint16
	// PeerIRD and PeerORD are those of the peer's frame, NotNegotiated if it has none.
	PeerIRD, PeerORD uint16
	Negotiated       bool // IRD and ORD were exchanged, by RFC 6581 or [MS-SMBD]
	PeerToPeer       bool // the initiator's first FPDU is an RTR message
	// RTR is the message that the responder asked for, and that the initiator must send as its first FPDU.
	RTR         RTR
	RtrFrame    bool   // an Rtr frame was exchanged: the responder need not wait for an FPDU
	PrivateData []byte // the peer consumer's
}

// setFraming sets Send and Receive from the flags and the version (RFC 5044, 7.1.1 and C.1).
func (p *Params) setFraming(c *Config, peer *frame) {
	crc := !c.NoCRC || peer.crc || p.Version == 0
	p.Receive = mpa.Framing{Markers: c.Markers || p.Version == 0, CRC: crc}
	p.LongFPDUs = c.LongFPDUs && peer.longFPDUs && peer.rev == RevEnhanced
	p.Send = mpa.Framing{Markers: peer.markers || p.Version == 0, CRC: crc}
}

// Stage is the progress of a start-up, for messages and timeouts.
type Stage uint8

const (
	StageAwaitRequest Stage = iota // responder: the Request is not complete
	StageDecide                    // responder: the consumer must accept or reject the Request
	StageAwaitReply                // initiator: the Reply is not complete
	StageAwaitRtr                  // responder: the Rtr frame is not complete
	StageEstablished               // full operation begins with the next byte of either direction
	StageRejected                  // the responder's consumer has rejected the connection; TCP stays open
	StageFailed                    // the connection must be closed, once Output is sent
)

// Retry is the change with which an initiator may retry on a new connection to the same peer.
type Retry uint8

const (
	RetryNone      Retry = iota
	RetryRevision1       // without RFC 6581
	RetryNoMarkers       // without asking for markers
)

// endpoint is the common part of Initiator and Responder.
type endpoint struct {
	cfg    Config
	stage  Stage
	reader frameReader
	out    [][]byte
	params Params
	err    *ulpdu.Error
}

// Output returns the next start-up frame to send, or nil. Each is returned once, and must not be changed. It must be
// sent in segments of its own, also when TCP retransmits it.
func (s *endpoint) Output() []byte {
	if len(s.out) == 0 {
		return nil
	}
	b := s.out[0]
	s.out = s.out[1:]
	return b
}

// Stage returns the progress of the start-up.
func (s *endpoint) Stage() Stage { return s.stage }

// Params returns the agreement; it is complete from StageEstablished or StageRejected on.
func (s *endpoint) Params() *Params { return &s.params }

// Closed reports that the connection is gone, or that the caller stopped waiting. why begins the text of the error. It
// returns the error to report, or nil if the start-up had finished.
func (s *endpoint) Closed(why string) *ulpdu.Error {
	switch s.stage {
	case StageEstablished, StageRejected:
		return nil
	case StageFailed:
		return s.err
	}
	return s.fail(ulpdu.Newf(ulpdu.MPA, 0, ulpdu.CodeClosed, "%s while %v", why, s.stage))
}

func (s *endpoint) fail(err *ulpdu.Error) *ulpdu.Error {
	s.stage, s.err = StageFailed, err
	return err
}

func (s *endpoint) queueFrame(f *frame) { s.out = append(s.out, f.appendTo(nil)) }

// MaxPrivateData is the largest private data of a start-up frame in bytes, including RFC 6581's four (RFC 5044, 7.1.1).
const MaxPrivateData = 512
