package tcp

import (
	"errors"

	"xwarp/tcp/ip"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// ECN is the two ECN bits of an IP header (RFC 3168, 5).
type ECN uint8

const (
	NotECT ECN = 0
	ECT1   ECN = 1
	ECT0   ECN = 2
	CE     ECN = 3
)

// Tuple identifies a connection from the view of this host. It is comparable.
type Tuple struct {
	Local, Remote         ip.Addr
	LocalPort, RemotePort uint16
}

// ErrTupleInUse is returned by an active open if this host already has a connection with the same Tuple.
var ErrTupleInUse = errors.New("a connection with these addresses and ports already exists")

// Segment is a received segment with a verified checksum and without its payload.
type Segment struct {
	wire.Header
	Len int // payload bytes
	ECN ECN
}

// Start returns the sequence number of the first payload byte.
func (s *Segment) Start() seq.Num {
	if s.Flags&wire.SYN != 0 {
		return s.Seq + 1
	}
	return s.Seq
}

// size returns SEG.LEN: the payload, plus one each for SYN and FIN.
func (s *Segment) size() int {
	n := s.Len
	if s.Flags&wire.SYN != 0 {
		n++
	}
	if s.Flags&wire.FIN != 0 {
		n++
	}
	return n
}

// Offer is the set of bytes of one segment that lie inside the window and were never kept, in ascending order. The
// bytes of R[i] begin at offset R[i].Start.Diff(segment.Start()) of the payload.
type Offer struct {
	N int
	R [MaxOffer]seq.Range
}

// Out is a segment to transmit. The bytes of Payload follow the header; it is empty in control segments.
type Out struct {
	wire.Header
	Payload    seq.Range
	ECN        ECN  // for the IP header
	Retransmit bool // a retransmission
	MTUProbe   bool // a path MTU probe: the payload is larger than EMSS
	Run        Run

	of *Conn     // connection of the last segment of a run
	at tick.Time // time of that segment
}

// Run is the relation of a segment to the previous one that Poll wrote to the same Out.
type Run uint8

const (
	RunNone  Run = iota // no known relation
	RunFirst            // the first segment of a run: RunNext segments may follow
	RunNext             // same header as the previous segment, except for sequence number, length and flags
)

// Source provides new bytes. The bytes returned by Next occupy the sequence numbers from SndNxt on, and must stay
// available until SndUna has passed them.
type Source interface {
	// Next freezes the next segment, at most room bytes of whole records, and returns its length. more reports that
	// bytes are left. n = 0 with more means that the next record needs more room; n = 0 alone means that there is
	// nothing to send. A record larger than EMSS may be returned with n > room when room is EMSS: Conn cuts it and
	// counts the cut.
	Next(room int) (n int, more bool)
}

// RunSource is a Source of many segments of one length.
type RunSource interface {
	Source
	// NextRun is equivalent to up to most calls of Next(size), as long as each returns exactly size bytes. It returns
	// the number of these segments, and more of the last call.
	NextRun(size, most int) (n int, more bool)
}

// ResetReply writes the RST that answers a segment without a connection (RFC 9293, 3.10.7.1). It returns false when the
// segment gets no answer.
func ResetReply(s *Segment, out *Out) bool {
	if s.Flags&wire.RST != 0 {
		return false
	}
	*out = Out{Header: wire.Header{SrcPort: s.DstPort, DstPort: s.SrcPort, Flags: wire.RST}}
	if s.Flags&wire.ACK != 0 {
		out.Seq = s.Ack
	} else {
		out.Flags |= wire.ACK
		out.Ack = s.Seq.Add(s.size())
	}
	out.Payload = seq.Of(out.Seq, 0)
	if s.Opt.Present&wire.HasTS != 0 { // RFC 7323, 5.2
		out.Opt.Present, out.Opt.TSEcr = wire.HasTS, s.Opt.TSVal
	}
	return true
}
