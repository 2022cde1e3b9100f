package rdmap

import (
	"encoding/binary"
	"fmt"

	"xwarp/ddp"
)

// Opcode is an RDMAP message type (RFC 5040, 4.1; RFC 7306, 4.1; RFC 6580).
type Opcode uint8

// The opcodes.
const (
	OpWrite        Opcode = 0x0
	OpReadRequest  Opcode = 0x1
	OpReadResponse Opcode = 0x2
	OpSend         Opcode = 0x3
	OpSendInv      Opcode = 0x4
	OpSendSE       Opcode = 0x5
	OpSendSEInv    Opcode = 0x6
	OpTerminate    Opcode = 0x7
	OpImm          Opcode = 0x8
	OpImmSE        Opcode = 0x9
	OpAtomicReq    Opcode = 0xA
	OpAtomicResp   Opcode = 0xB
	OpSendImm      Opcode = 0xC // these three: see private.go
	OpSendImmSE    Opcode = 0xD
	OpReport       Opcode = 0xE
)

func (o Opcode) String() string {
	names := [...]string{"RDMA Write", "RDMA Read Request", "RDMA Read Response", "Send",
		"Send with Invalidate", "Send with SE",
		"Send with SE and Invalidate", "Terminate", "Immediate Data", "Immediate Data with SE",
		"Atomic Request", "Atomic Response", "Send with Immediate",
		"Send with SE and Immediate", "Report"}
	if int(o) < len(names) {
		return names[o]
	}
	return fmt.Sprintf("opcode %#x", uint8(o))
}

// Solicited reports whether the message asks for an event at delivery.
func (o Opcode) Solicited() bool {
	return o == OpSendSE || o == OpSendSEInv || o == OpImmSE || o == OpSendImmSE
}

// Invalidates reports whether the message carries an Invalidate STag.
func (o Opcode) Invalidates() bool { return o == OpSendInv || o == OpSendSEInv }

// Queues of the untagged model (RFC 5040, 3.1; RFC 7306, 4.1).
const (
	QNSend      ddp.QN = 0
	QNRead      ddp.QN = 1
	QNTerminate ddp.QN = 2
	QNAtomic    ddp.QN = 3
)

// Bits of the control byte: RV 0xC0, two reserved, opcode (RFC 5040, 4.1).
const (
	controlRVShift = 6
	controlOpcode  = 0x0F
)

// control returns RDMAP's control byte. RDMAP's version equals DDP's.
func control(op Opcode, v ddp.Version) uint8 { return uint8(v)<<controlRVShift | uint8(op) }

// opcodeOf returns the opcode in RDMAP's control byte.
func opcodeOf(b uint8) Opcode { return Opcode(b & controlOpcode) }

// versionOf returns the RV field of RDMAP's control byte.
func versionOf(b uint8) ddp.Version { return ddp.Version(b >> controlRVShift) }

// Lengths of the messages of fixed length: without the DDP header, and as a ULPDU.
const (
	ReadRequestLen   = 28 // header behind the DDP header
	AtomicRequestLen = 52
	AtomicRespLen    = 12
	ImmLen           = 8

	readRequestULPDU   = ddp.UntaggedLen + ReadRequestLen
	atomicRequestULPDU = ddp.UntaggedLen + AtomicRequestLen
	atomicRespULPDU    = ddp.UntaggedLen + AtomicRespLen
)

// ReadRequest is the header of an RDMA Read Request (RFC 5040, 4.4):
//
//	0..3 sink STag  4..11 sink TO  12..15 size  16..19 source STag  20..27 source TO
type ReadRequest struct {
	SinkSTag ddp.STag
	SinkTO   ddp.TO
	Size     uint32
	SrcSTag  ddp.STag
	SrcTO    ddp.TO
}

// ParseReadRequest decodes the 28 bytes at the start of b; rest aliases b. It fails with
// ddp.ErrShort.
func ParseReadRequest(b []byte) (r ReadRequest, rest []byte, err error) {
	if len(b) < ReadRequestLen {
		return r, nil, ddp.ErrShort
	}
	r.SinkSTag = ddp.STag(binary.BigEndian.Uint32(b))
	r.SinkTO = ddp.TO(binary.BigEndian.Uint64(b[4:]))
	r.Size = binary.BigEndian.Uint32(b[12:])
	r.SrcSTag = ddp.STag(binary.BigEndian.Uint32(b[16:]))
	r.SrcTO = ddp.TO(binary.BigEndian.Uint64(b[20:]))
	return r, b[ReadRequestLen:], nil
}

// AppendReadRequest appends the header to b.
func AppendReadRequest(b []byte, r ReadRequest) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(r.SinkSTag))
	b = binary.BigEndian.AppendUint64(b, uint64(r.SinkTO))
	b = binary.BigEndian.AppendUint32(b, r.Size)
	b = binary.BigEndian.AppendUint32(b, uint32(r.SrcSTag))
	return binary.BigEndian.AppendUint64(b, uint64(r.SrcTO))
}

func (r ReadRequest) String() string {
	return fmt.Sprintf("read %d bytes from STag %#08x TO %#x to STag %#08x TO %#x", r.Size,
		uint32(r.SrcSTag), uint64(r.SrcTO), uint32(r.SinkSTag), uint64(r.SinkTO))
}

// AtomicOp is an atomic operation code (RFC 7306, figure 5).
type AtomicOp uint8

// The atomic operations; 1 is reserved.
const (
	FetchAdd AtomicOp = 0
	CmpSwap  AtomicOp = 2
)

func (a AtomicOp) String() string {
	switch a {
	case FetchAdd:
		return "FetchAdd"
	case CmpSwap:
		return "CmpSwap"
	}
	return fmt.Sprintf("atomic %d", uint8(a))
}

// AtomicRequest is the header of an Atomic Request (RFC 7306, 5.2.1). Values are plain
// integers here and big-endian on the wire.
//
//	0..3 reserved 28 bits and AOpCode  4..7 id  8..11 STag  12..19 TO  20..27 data  28..35 mask  36..43 compare  44..51 compare mask
type AtomicRequest struct {
	Op          AtomicOp
	ID          uint32
	STag        ddp.STag
	TO          ddp.TO
	Data        uint64 // to add or to swap in
	Mask        uint64 // FetchAdd: top bit of each field; CmpSwap: bits to swap
	Compare     uint64
	CompareMask uint64
}

// ParseAtomicRequest decodes the 52 bytes at the start of b; rest aliases b. It fails with ddp.ErrShort. It does not
// check the operation.
func ParseAtomicRequest(b []byte) (r AtomicRequest, rest []byte, err error) {
	if len(b) < AtomicRequestLen {
		return r, nil, ddp.ErrShort
	}
	r.Op = AtomicOp(b[3] & 0x0F)
	r.ID = binary.BigEndian.Uint32(b[4:])
	r.STag = ddp.STag(binary.BigEndian.Uint32(b[8:]))
	r.TO = ddp.TO(binary.BigEndian.Uint64(b[12:]))
	r.Data = binary.BigEndian.Uint64(b[20:])
	r.Mask = binary.BigEndian.Uint64(b[28:])
	r.Compare = binary.BigEndian.Uint64(b[36:])
	r.CompareMask = binary.BigEndian.Uint64(b[44:])
	return r, b[AtomicRequestLen:], nil
}

// AppendAtomicRequest appends the header to b.
func AppendAtomicRequest(b []byte, r AtomicRequest) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(r.Op)&0x0F)
	b = binary.BigEndian.AppendUint32(b, r.ID)
	b = binary.BigEndian.AppendUint32(b, uint32(r.STag))
	b = binary.BigEndian.AppendUint64(b, uint64(r.TO))
	b = binary.BigEndian.AppendUint64(b, r.Data)
	b = binary.BigEndian.AppendUint64(b, r.Mask)
	b = binary.BigEndian.AppendUint64(b, r.Compare)
	return binary.BigEndian.AppendUint64(b, r.CompareMask)
}

func (r AtomicRequest) String() string {
	return fmt.Sprintf("%v id %d STag %#08x TO %#x data %#x mask %#x compare %#x mask %#x", r.Op,
		r.ID, uint32(r.STag), uint64(r.TO), r.Data, r.Mask, r.Compare, r.CompareMask)
}

// Apply returns the new value of a word with the value old (RFC 7306, 5.1), and whether the operation is known.
func (r AtomicRequest) Apply(old uint64) (uint64, bool) {
	switch r.Op {
	case FetchAdd:
		// The top bit of each field takes part as a sum without carry, so that no carry
		// leaves the field.
		return ((old &^ r.Mask) + (r.Data &^ r.Mask)) ^ ((old ^ r.Data) & r.Mask), true
	case CmpSwap:
		if (r.Compare^old)&r.CompareMask != 0 {
			return old, true
		}
		return old&^r.Mask | r.Data&r.Mask, true
	}
	return old, false
}

// AtomicResponse is the header of an Atomic Response (RFC 7306, 5.2.2):
//
//	0..3 original request id  4..11 original value
type AtomicResponse struct {
	ID    uint32
	Value uint64
}

// ParseAtomicResponse decodes the 12 bytes at the start of b; rest aliases b. It fails with
// ddp.ErrShort.
func ParseAtomicResponse(b []byte) (r AtomicResponse, rest []byte, err error) {
	if len(b) < AtomicRespLen {
		return r, nil, ddp.ErrShort
	}
	r.ID = binary.BigEndian.Uint32(b)
	r.Value = binary.BigEndian.Uint64(b[4:])
	return r, b[AtomicRespLen:], nil
}

// AppendAtomicResponse appends the header to b.
func AppendAtomicResponse(b []byte, r AtomicResponse) []byte {
	b = binary.BigEndian.AppendUint32(b, r.ID)
	return binary.BigEndian.AppendUint64(b, r.Value)
}
