package ddp

import (
	"fmt"

	"xwarp/mpa/ulpdu"
)

// Cause is the reason why a stream ends, as in a Terminate: layer, type and code, with a bit that keeps it from being
// 0. The zero value means no error.
type Cause uint32

const causeMark = 1 << 24

// Causes of DDP (RFC 5041, 7.2). The digits are 0x01LLTTCC: mark, layer, type, code.
const (
	CauseNone         Cause = 0
	CauseCatastrophic Cause = causeMark | 0x010000

	CauseSTag          Cause = causeMark | 0x010100
	CauseBounds        Cause = causeMark | 0x010101
	CauseStream        Cause = causeMark | 0x010102
	CauseWrap          Cause = causeMark | 0x010103
	CauseTaggedVersion Cause = causeMark | 0x010104

	CauseQN              Cause = causeMark | 0x010201
	CauseNoBuffer        Cause = causeMark | 0x010202
	CauseMSNRange        Cause = causeMark | 0x010203
	CauseMO              Cause = causeMark | 0x010204
	CauseTooLong         Cause = causeMark | 0x010205
	CauseUntaggedVersion Cause = causeMark | 0x010206
)

// MakeCause returns the cause with the given fields. typ is cut to its 4 bits.
func MakeCause(l ulpdu.Layer, typ, code uint8) Cause {
	return causeMark | Cause(l&15)<<16 | Cause(typ&15)<<8 | Cause(code)
}

// Layer returns the layer that found the error.
func (c Cause) Layer() ulpdu.Layer { return ulpdu.Layer(c >> 16 & 15) }

// Type returns the error type, 4 bits.
func (c Cause) Type() uint8 { return uint8(c >> 8 & 15) }

// Code returns the error code.
func (c Cause) Code() uint8 { return uint8(c) }

// Errorf returns the cause as an error with a detail for an engineer, or nil for CauseNone.
func (c Cause) Errorf(format string, args ...any) *ulpdu.Error {
	if c == CauseNone {
		return nil
	}
	return ulpdu.Newf(c.Layer(), c.Type(), c.Code(), format, args...)
}

func (c Cause) String() string {
	if c == CauseNone {
		return "none"
	}
	return fmt.Sprintf("%v %d/%d/%02x", c.Layer(), c.Layer(), c.Type(), c.Code())
}

// TaggedCause returns the cause that DDP reports for a fault of an incoming tagged segment. RFC 5041 has no code for a
// missing right. The buffer does not allow placement, so the STag is invalid (7.1, check 2 of tagged segments).
func TaggedCause(f Fault) Cause {
	switch f {
	case OK:
		return CauseNone
	case FaultStream:
		return CauseStream
	case FaultWrap:
		return CauseWrap
	case FaultBounds:
		return CauseBounds
	}
	return CauseSTag
}
