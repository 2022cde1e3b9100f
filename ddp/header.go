package ddp

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Offsets and lengths of the headers inside a ULPDU (RFC 5041, 4.2 and 4.3).
//
//	byte  0         1         2..5       6..13               14..17
//	       control   RsvdULP   STag       TO                               tagged, 14 bytes
//	       control   RsvdULP   RsvdULP    QN (6..9) MSN (10..13)  MO        untagged, 18 bytes
const (
	TaggedLen   = 14
	UntaggedLen = 18

	offControl = 0
	offULP     = 1
	offSTag    = 2
	offTO      = 6
	offULPWord = 2
	offQN      = 6
	offMSN     = 10
	offMO      = 14
)

// STag names a tagged buffer. 0 is never assigned: some adapters fail on it.
type STag uint32

// TO is a tagged offset, in bytes. The registration chooses the TO of the first byte of a buffer.
type TO uint64

// QN is a queue number of the untagged buffer model.
type QN uint32

// MSN numbers the untagged messages of one queue and direction. The first is 1, and 0 follows 0xffffffff.
type MSN uint32

// MO is the offset in bytes of a segment in its untagged message.
type MO uint32

// Version is the DDP version on the wire.
type Version uint8

// The two versions of RFC 5041, 4.1. They never mix on one stream.
const (
	RDMAC Version = 0 // RDMA Consortium
	IETF  Version = 1 // RFC 5041
)

func (v Version) String() string {
	switch v {
	case RDMAC:
		return "0 (RDMA Consortium)"
	case IETF:
		return "1 (RFC 5041)"
	}
	return fmt.Sprintf("%d (unknown)", uint8(v))
}

// Control is the first byte of every segment (RFC 5041, 4.1): T, L, four reserved bits that are sent as zero and
// ignored, and the version.
type Control uint8

// Bits of Control.
const (
	controlTagged  Control = 0x80
	controlLast    Control = 0x40
	controlVersion Control = 0x03
)

// MakeControl returns the control byte with the reserved bits zero.
func MakeControl(tagged, last bool, v Version) Control {
	c := Control(v) & controlVersion
	if tagged {
		c |= controlTagged
	}
	if last {
		c |= controlLast
	}
	return c
}

// Tagged reports whether the segment goes to a tagged buffer.
func (c Control) Tagged() bool { return c&controlTagged != 0 }

// Last reports whether the segment is the last of its message.
func (c Control) Last() bool { return c&controlLast != 0 }

// Version returns the DV field.
func (c Control) Version() Version { return Version(c & controlVersion) }

// HeaderLen returns the length in bytes of the header that c begins.
func (c Control) HeaderLen() int {
	if c.Tagged() {
		return TaggedLen
	}
	return UntaggedLen
}

// ErrShort is returned for a ULPDU that ends inside its header.
var ErrShort = errors.New("ddp: ULPDU ends inside its header; the peer's framing is broken")

// ErrModel is returned if the T bit does not match the header asked for.
var ErrModel = errors.New("ddp: T bit names the other buffer model")

// Tagged is the header of a tagged segment.
type Tagged struct {
	Control Control
	ULP     uint8 // RsvdULP: RDMAP's control byte
	STag    STag
	TO      TO // of the first payload byte
}

// ParseTagged decodes the header at the start of b; rest aliases b. It fails with
// ErrShort or ErrModel.
func ParseTagged(b []byte) (h Tagged, rest []byte, err error) {
	if len(b) < TaggedLen {
		return h, nil, ErrShort
	}
	if !Control(b[offControl]).Tagged() {
		return h, nil, ErrModel
	}
	h.Decode(b)
	return h, b[TaggedLen:], nil
}

// Decode reads the 14 bytes at the start of b, which the caller has checked for
// length and T bit.
func (h *Tagged) Decode(b []byte) {
	_ = b[TaggedLen-1]
	h.Control = Control(b[offControl])
	h.ULP = b[offULP]
	h.STag = STag(binary.BigEndian.Uint32(b[offSTag:]))
	h.TO = TO(binary.BigEndian.Uint64(b[offTO:]))
}

// Put writes the 14 bytes to the start of b.
func (h *Tagged) Put(b []byte) {
	_ = b[TaggedLen-1]
	b[offControl] = byte(h.Control)
	b[offULP] = h.ULP
	binary.BigEndian.PutUint32(b[offSTag:], uint32(h.STag))
	binary.BigEndian.PutUint64(b[offTO:], uint64(h.TO))
}

// AppendTagged appends the header to b.
func AppendTagged(b []byte, h Tagged) []byte {
	var w [TaggedLen]byte
	h.Put(w[:])
	return append(b, w[:]...)
}

func (h Tagged) String() string {
	return fmt.Sprintf("tagged%s DV %d ULP %#02x STag %#08x TO %#x", lastSuffix(h.Control),
		h.Control.Version(), h.ULP, uint32(h.STag), uint64(h.TO))
}

// Untagged is the header of an untagged segment.
type Untagged struct {
	Control Control
	ULP     uint8  // RsvdULP: RDMAP's control byte
	ULPWord uint32 // RsvdULP: RDMAP's Invalidate STag
	QN      QN
	MSN     MSN
	MO      MO
}

// ParseUntagged decodes the header at the start of b; rest aliases b. It fails with
// ErrShort or ErrModel.
func ParseUntagged(b []byte) (h Untagged, rest []byte, err error) {
	if len(b) < UntaggedLen {
		return h, nil, ErrShort
	}
	if Control(b[offControl]).Tagged() {
		return h, nil, ErrModel
	}
	h.Decode(b)
	return h, b[UntaggedLen:], nil
}

// Decode reads the 18 bytes at the start of b, which the caller has checked for
// length and T bit.
func (h *Untagged) Decode(b []byte) {
	_ = b[UntaggedLen-1]
	h.Control = Control(b[offControl])
	h.ULP = b[offULP]
	h.ULPWord = binary.BigEndian.Uint32(b[offULPWord:])
	h.QN = QN(binary.BigEndian.Uint32(b[offQN:]))
	h.MSN = MSN(binary.BigEndian.Uint32(b[offMSN:]))
	h.MO = MO(binary.BigEndian.Uint32(b[offMO:]))
}

// Put writes the 18 bytes to the start of b.
func (h *Untagged) Put(b []byte) {
	_ = b[UntaggedLen-1]
	b[offControl] = byte(h.Control)
	b[offULP] = h.ULP
	binary.BigEndian.PutUint32(b[offULPWord:], h.ULPWord)
	binary.BigEndian.PutUint32(b[offQN:], uint32(h.QN))
	binary.BigEndian.PutUint32(b[offMSN:], uint32(h.MSN))
	binary.BigEndian.PutUint32(b[offMO:], uint32(h.MO))
}

// AppendUntagged appends the header to b.
func AppendUntagged(b []byte, h Untagged) []byte {
	var w [UntaggedLen]byte
	h.Put(w[:])
	return append(b, w[:]...)
}

func (h Untagged) String() string {
	return fmt.Sprintf("untagged%s DV %d ULP %#02x word %#08x QN %d MSN %d MO %d",
		lastSuffix(h.Control), h.Control.Version(), h.ULP, h.ULPWord, h.QN, h.MSN, h.MO)
}

func lastSuffix(c Control) string {
	if c.Last() {
		return " last"
	}
	return ""
}
