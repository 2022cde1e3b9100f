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

// Role is how an endpoint deals with RDMA Consortium peers (RFC 5044, appendix C).
type Role uint8

const (
	NonPermissive Role = iota // IETF only
	Permissive                // IETF, falls back to version 0
	RDMAC                     // version 0 only
)

// RTR is a set of ready-to-receive messages (RFC 6581, 4.3 and 9.2): zero-length messages of which the
// initiator sends one first.
type RTR uint8

const (
	RTRSend  RTR = 1 << iota // zero-length Send
	RTRWrite                 // zero-length RDMA Write
	RTRRead                  // zero-length RDMA Read Request

	allRTR = RTRSend | RTRWrite | RTRRead
)

// preferred returns the message of t that is understood best in the field: Read, then Write, then Send.
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

// Config is what one endpoint wants.
type Config struct {
	Role Role
	// Revision is the highest that is used, RevIETF or RevEnhanced; zero means RevEnhanced. The role RDMAC
	// uses RevRDMAC.
	Revision Revision
	// Markers asks for markers in the stream that this endpoint receives. With version 0 there are markers in any case.
	Markers bool
	// MirrorMarkers makes a responder ask for markers only when the initiator asked for them too. An
	// initiator that knows no markers, as most do, takes the M of a Reply for a refusal, and a responder
	// cannot try again.
	MirrorMarkers bool
	// LongFPDUs offers with RevEnhanced, by a reserved bit that Linux's soft-iWARP has for it, that either
	// end may send FPDUs longer than a segment. RFC 5044 keeps FPDUs within one, for receivers that place
	// each segment by itself.
	LongFPDUs bool
	// NoCRC gives up the CRC if the peer does too; only an administrator may say so.
	NoCRC bool
	// PrivateData is the initiator's; at most 512 octets, four less with RevEnhanced, eight less with SMBD.
	PrivateData []byte
	// IRD and ORD are how many RDMA Reads this endpoint takes and sends at a time; at most NotNegotiated. A responder's
	// are in its Answer.
	IRD, ORD uint16
	// RTR is the set of RTR messages that this endpoint can send or take. For an initiator 0 is the
	// client-server model, in which the consumer that connects sends first; for a responder 0 means all.
	RTR RTR
	// RtrFrame enables the proposal that came before RFC 6581: a third start-up frame, with RevIETF only.
	RtrFrame bool
	// SMBD puts the IRD and ORD of [MS-SMBD] in front of the private data of RevIETF, and looks for them there.
	SMBD bool
}

// check returns an error that names the wrong field.
func (c *Config) check() error {
	switch {
	case c.Role > RDMAC:
		return fmt.Errorf("mpa: no role %d", c.Role)
	case c.Revision > RevEnhanced:
		return fmt.Errorf("mpa: no revision %d", c.Revision)
	case c.IRD > NotNegotiated, c.ORD > NotNegotiated:
		return fmt.Errorf("mpa: IRD %d and ORD %d must be at most %d", c.IRD, c.ORD, NotNegotiated)
	case c.RTR&^allRTR != 0:
		return fmt.Errorf("mpa: no RTR set %#x", uint8(c.RTR))
	}
	return nil
}

// revision returns the revision that an initiator asks with and the highest that a responder takes.
func (c *Config) revision() Revision {
	switch {
	case c.Role == RDMAC:
		return RevRDMAC
	case c.Revision == 0:
		return RevEnhanced
	}
	return c.Revision
}

// limitData returns b, a header and own octets of the consumer's private data, if that fits a frame.
func limitData(b []byte, own int) ([]byte, error) {
	if len(b) > MaxPrivateData {
		return nil, fmt.Errorf("mpa: %d bytes of private data are too many, %d fit", own,
			MaxPrivateData-(len(b)-own))
	}
	return b, nil
}

// Params is what the two endpoints agreed on.
type Params struct {
	Revision  Revision    // of the peer's frame
	Version   uint8       // of DDP and RDMAP: 1, or 0 for the RDMA Consortium's
	Send      mpa.Framing // of the stream that this endpoint sends
	Receive   mpa.Framing
	LongFPDUs bool // both ends offered them
	// IRD and ORD of this endpoint: with Negotiated what the exchange gave, otherwise its own wishes.
	IRD, ORD uint16
	// PeerIRD and PeerORD as they stand in the peer's frame; NotNegotiated when it has none.
	PeerIRD, PeerORD uint16
	Negotiated       bool // IRD and ORD were exchanged, by RFC 6581 or [MS-SMBD]
	PeerToPeer       bool // an RTR message opens the stream of the initiator
	// RTR is the message that the initiator must send as its very first FPDU, and that the responder asked for.
	RTR         RTR
	RtrFrame    bool   // an Rtr frame was exchanged: the responder need not wait for an FPDU
	PrivateData []byte // the peer consumer's
}

// setFraming sets what flags and version say about the FPDUs (RFC 5044, 7.1.1 and C.1).
func (p *Params) setFraming(c *Config, peer *frame) {
	crc := !c.NoCRC || peer.crc || p.Version == 0
	p.Receive = mpa.Framing{Markers: c.Markers || p.Version == 0, CRC: crc}
	p.LongFPDUs = c.LongFPDUs && peer.longFPDUs && peer.rev == RevEnhanced
	p.Send = mpa.Framing{Markers: peer.markers || p.Version == 0, CRC: crc}
}

// Stage is how far a start-up has come, for messages and timeouts.
type Stage uint8

const (
	StageAwaitRequest Stage = iota // responder: the Request is not complete
	StageDecide                    // responder: the consumer must accept or reject
	StageAwaitReply                // initiator: the Reply is not complete
	StageAwaitRtr                  // responder: the Rtr frame is not complete
	StageEstablished               // full operation begins with the next octet of either direction
	StageRejected                  // the responder's consumer has said no; TCP is as it was
	StageFailed                    // the connection is to be closed, once Output is sent
)

// Retry is what an initiator may do with a new connection to the same peer.
type Retry uint8

const (
	RetryNone      Retry = iota
	RetryRevision1       // without RFC 6581
	RetryNoMarkers       // without asking for markers
)

// endpoint is what the two sides have in common.
type endpoint struct {
	cfg    Config
	stage  Stage
	reader frameReader
	out    [][]byte
	params Params
	err    *ulpdu.Error
}

// Output returns the next start-up frame to send, or nil; each is returned once, and must not be changed. It
// must travel in segments of its own, also when TCP sends it again.
func (s *endpoint) Output() []byte {
	if len(s.out) == 0 {
		return nil
	}
	b := s.out[0]
	s.out = s.out[1:]
	return b
}

// Stage returns how far the start-up has come.
func (s *endpoint) Stage() Stage { return s.stage }

// Params returns what was agreed; it is complete from StageEstablished or StageRejected on.
func (s *endpoint) Params() *Params { return &s.params }

// Closed says that the connection is gone, or that the caller gave up waiting; why is for the message. It
// returns the error to report, nil when the start-up was over.
func (s *endpoint) Closed(why string) *ulpdu.Error {
	switch s.stage {
	case StageEstablished, StageRejected:
		return nil
	case StageFailed:
		return s.err
	}
	return s.fail(ulpdu.Newf(ulpdu.MPA, 0, mpa.CodeClosed, "%s while %v", why, s.stage))
}

func (s *endpoint) fail(err *ulpdu.Error) *ulpdu.Error {
	s.stage, s.err = StageFailed, err
	return err
}

func (s *endpoint) queueFrame(f *frame) { s.out = append(s.out, f.appendTo(nil)) }
