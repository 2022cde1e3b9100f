package rdmap

import (
	"encoding/binary"
	"fmt"

	"xwarp/ddp"
	"xwarp/mpa/ulpdu"
)

// Causes of RDMAP (RFC 5040, figure 9). Those of DDP are in package ddp, those of MPA come
// from package mpa. The digits are 0x01LLTTCC: mark, layer, type, code.
const (
	CauseCatastrophic ddp.Cause = 1 << 24

	CauseProtSTag         ddp.Cause = 1<<24 | 0x000100
	CauseProtBounds       ddp.Cause = 1<<24 | 0x000101
	CauseProtAccess       ddp.Cause = 1<<24 | 0x000102
	CauseProtStream       ddp.Cause = 1<<24 | 0x000103
	CauseProtWrap         ddp.Cause = 1<<24 | 0x000104
	CauseProtInvalidate   ddp.Cause = 1<<24 | 0x000109
	CauseProtUnspecified  ddp.Cause = 1<<24 | 0x0001FF
	CauseVersion          ddp.Cause = 1<<24 | 0x000205
	CauseOpcode           ddp.Cause = 1<<24 | 0x000206
	CauseStreamFatal      ddp.Cause = 1<<24 | 0x000207
	CauseGlobalFatal      ddp.Cause = 1<<24 | 0x000208
	CauseOpInvalidate     ddp.Cause = 1<<24 | 0x000209
	CauseOpUnspecified    ddp.Cause = 1<<24 | 0x0002FF
	causeMPA              ddp.Cause = 1<<24 | 0x020000
	causeSinkDenied                 = CauseOpUnspecified // a message for memory that its receive may not write
	typeCatastrophic      uint8     = 0
	typeRemoteProtection  uint8     = 1
	typeMPAOfSomeChelsios uint8     = 3 // cxgb4 sends 0x23 for MPA's errors
)

// Row is a row of the error tables of RFC 5040, 5041, 5044 and 6581.
type Row struct {
	Cause ddp.Cause
	Name  string
}

// Rows returns every error that a Terminate can report, in the order of the RFCs.
func Rows() []Row { return append([]Row(nil), rows[:]...) }

var rows = [...]Row{
	{CauseCatastrophic, "RDMAP local catastrophic error"},
	{CauseProtSTag, "remote protection error: invalid STag"},
	{CauseProtBounds, "remote protection error: base or bounds violation"},
	{CauseProtAccess, "remote protection error: access rights violation"},
	{CauseProtStream, "remote protection error: STag not associated with the stream"},
	{CauseProtWrap, "remote protection error: TO wrap"},
	{CauseProtInvalidate, "remote protection error: STag cannot be invalidated"},
	{CauseProtUnspecified, "remote protection error: unspecified"},
	{CauseVersion, "remote operation error: invalid RDMAP version"},
	{CauseOpcode, "remote operation error: unexpected opcode"},
	{CauseStreamFatal, "remote operation error: catastrophic, this stream"},
	{CauseGlobalFatal, "remote operation error: catastrophic, global"},
	{CauseOpInvalidate, "remote operation error: STag cannot be invalidated"},
	{CauseOpUnspecified, "remote operation error: unspecified"},
	{ddp.CauseCatastrophic, "DDP local catastrophic error"},
	{ddp.CauseSTag, "tagged buffer error: invalid STag"},
	{ddp.CauseBounds, "tagged buffer error: base or bounds violation"},
	{ddp.CauseStream, "tagged buffer error: STag not associated with the stream"},
	{ddp.CauseWrap, "tagged buffer error: TO wrap"},
	{ddp.CauseTaggedVersion, "tagged buffer error: invalid DDP version"},
	{ddp.CauseQN, "untagged buffer error: invalid QN"},
	{ddp.CauseNoBuffer, "untagged buffer error: invalid MSN, no buffer available"},
	{ddp.CauseMSNRange, "untagged buffer error: invalid MSN, out of range"},
	{ddp.CauseMO, "untagged buffer error: invalid MO"},
	{ddp.CauseTooLong, "untagged buffer error: message too long for the buffer"},
	{ddp.CauseUntaggedVersion, "untagged buffer error: invalid DDP version"},
	{causeMPA | ulpdu.CodeClosed, "MPA error: TCP connection closed, lost or reset"},
	{causeMPA | ulpdu.CodeCRC, "MPA error: CRC mismatch"},
	{causeMPA | ulpdu.CodeMarker, "MPA error: marker and length disagree"},
	{causeMPA | ulpdu.CodeStartup, "MPA error: invalid start-up frame"},
	{causeMPA | ulpdu.CodeLocal, "MPA error: local catastrophic error"},
	{causeMPA | ulpdu.CodeIRD, "MPA error: insufficient IRD"},
	{causeMPA | ulpdu.CodeRTR, "MPA error: no matching RTR"},
}

// Describe returns the name of an error in the RFCs, and whether it has one.
func Describe(c ddp.Cause) (string, bool) {
	for i := range rows {
		if rows[i].Cause == c {
			return rows[i].Name, true
		}
	}
	if c.Layer() == ulpdu.RDMAP && c.Type() == typeCatastrophic {
		return rows[0].Name, true // any code is acceptable there
	}
	return fmt.Sprintf("unknown error %v", c), false
}

// protectionCause returns the cause that RDMAP reports for a fault of a Read or Atomic Request.
func protectionCause(f ddp.Fault) ddp.Cause {
	switch f {
	case ddp.OK:
		return ddp.CauseNone
	case ddp.FaultSTag:
		return CauseProtSTag
	case ddp.FaultStream:
		return CauseProtStream
	case ddp.FaultAccess:
		return CauseProtAccess
	case ddp.FaultWrap:
		return CauseProtWrap
	case ddp.FaultBounds:
		return CauseProtBounds
	case ddp.FaultInvalid:
		return CauseProtInvalidate
	}
	return CauseProtUnspecified
}

// Terminate is the header of a Terminate message (RFC 5040, 4.8). HasDDP says that it includes the length and DDP
// header of the segment at fault, HasRead that it includes its Read Request header.
//
//	0  Layer 0xF0, EType 0x0F   1  code   2  M 0x80, D 0x40, R 0x20   3  reserved
//	4..5 DDP segment length, then 14 or 18 bytes of DDP header, both with D
//	28 bytes of Read Request header with R
type Terminate struct {
	Cause   ddp.Cause
	HasDDP  bool
	HasRead bool
	SegLen  uint16
	DDP     [ddp.UntaggedLen]byte // 14 bytes count when its T bit is set
	Read    ReadRequest
	// Swapped marks a received header with exchanged nibbles, which Linux siw sends on little-endian machines. Cause
	// has them in the right order.
	Swapped bool
}

const (
	termM = 0x80
	termD = 0x40
	termR = 0x20
)

// AppendTerminate appends the header to b.
func AppendTerminate(b []byte, t *Terminate) []byte {
	var bits byte
	if t.HasDDP {
		bits |= termM | termD
	}
	if t.HasRead {
		bits |= termR
	}
	b = append(b, byte(t.Cause.Layer())<<4|t.Cause.Type(), t.Cause.Code(), bits, 0)
	if t.HasDDP {
		b = binary.BigEndian.AppendUint16(b, t.SegLen)
		b = append(b, t.DDP[:ddp.Control(t.DDP[0]).HeaderLen()]...)
	}
	if t.HasRead {
		b = AppendReadRequest(b, t.Read)
	}
	return b
}

// AppendTerminateULPDU appends a whole ULPDU: the DDP header of a Terminate, which is the only message of queue 2, and
// t.
func AppendTerminateULPDU(b []byte, t *Terminate, v ddp.Version) []byte {
	h := ddp.Untagged{Control: ddp.MakeControl(false, true, v), ULP: control(OpTerminate, v),
		QN: QNTerminate, MSN: 1}
	return AppendTerminate(ddp.AppendUntagged(b, h), t)
}

// ParseTerminate decodes a Terminate header. It fails with ddp.ErrShort below 4 bytes. It ignores included headers that
// are cut off, since any Terminate ends the stream.
func ParseTerminate(b []byte) (t Terminate, err error) {
	if len(b) < 4 {
		return t, ddp.ErrShort
	}
	layer, typ, bits := b[0]>>4, b[0]&15, b[2]
	if swappedTerminate(b) {
		t.Swapped = true
		layer, typ = typ, layer
		bits = bits&1<<7 | bits&2<<5 | bits&4<<3
	}
	t.Cause = ddp.MakeCause(ulpdu.Layer(layer), typ, b[1])
	b = b[4:]
	if bits&termD != 0 && len(b) >= 3 {
		n := ddp.Control(b[2]).HeaderLen()
		if len(b) >= 2+n {
			t.HasDDP = true
			t.SegLen = binary.BigEndian.Uint16(b)
			copy(t.DDP[:n], b[2:])
			b = b[2+n:]
		}
	}
	if bits&termR != 0 && (t.HasDDP || bits&termD == 0) {
		t.Read, _, err = ParseReadRequest(b)
		t.HasRead, err = err == nil, nil
	}
	return t, nil
}

// swappedTerminate reports whether the control word has the layout of Linux siw on little-endian machines: the header
// bits are at the wrong end only, or the value is not in the RFCs and becomes one of theirs by the exchange.
func swappedTerminate(b []byte) bool {
	layer, typ, code := b[0]>>4, b[0]&15, b[1]
	high, low := b[2]&0xE0, b[2]&0x07
	if high != 0 || !legalCause(typ, layer, code) {
		return false
	}
	return low != 0 || !legalCause(layer, typ, code)
}

// legalCause reports whether the RFCs, or cxgb4, have this combination of layer, type and code.
func legalCause(layer, typ, code uint8) bool {
	if layer == uint8(ulpdu.MPA) && typ == typeMPAOfSomeChelsios {
		typ = 0
	}
	_, ok := Describe(ddp.MakeCause(ulpdu.Layer(layer), typ, code))
	return ok
}

func (t Terminate) String() string {
	name, _ := Describe(t.Cause)
	s := fmt.Sprintf("terminate %d/%d/%02x, %s", t.Cause.Layer(), t.Cause.Type(), t.Cause.Code(),
		name)
	if t.Swapped {
		s += " (siw-style)"
	}
	if t.HasDDP {
		if h, _, err := ddp.ParseTagged(t.DDP[:]); err == nil {
			s += fmt.Sprintf("; segment of %d bytes: %v", t.SegLen, h)
		} else if h, _, err := ddp.ParseUntagged(t.DDP[:]); err == nil {
			s += fmt.Sprintf("; segment of %d bytes: %v", t.SegLen, h)
		}
	}
	if t.HasRead {
		s += "; " + t.Read.String()
	}
	return s
}

// makeTerminate builds the message for cause c. hdr is the DDP header of the segment at fault and n its ULPDU length;
// hdr is empty if no incoming message is at fault. read is its Read Request header, nil for any other message (RFC
// 5040, figure 10 and 7.1; RFC 7306, 8.1).
func makeTerminate(c ddp.Cause, hdr []byte, n int, read *ReadRequest) Terminate {
	t := Terminate{Cause: c}
	local := c.Type() == typeCatastrophic
	if len(hdr) == 0 || len(hdr) < ddp.Control(hdr[0]).HeaderLen() || local ||
		c.Layer() == ulpdu.MPA {
		return t
	}
	t.HasDDP = true
	t.SegLen = uint16(n) // no ULPDU is longer than MPA's 64,768 bytes
	copy(t.DDP[:], hdr[:ddp.Control(hdr[0]).HeaderLen()])
	if read != nil && c.Layer() == ulpdu.RDMAP && c.Type() == typeRemoteProtection {
		t.HasRead, t.Read = true, *read
	}
	return t
}
