// Package ulpdu holds the types that MPA shares with the layers above it (DDP, RDMAP): the error that a Terminate
// reports, the name of an outgoing ULPDU, and the view of a received one.
package ulpdu

import "fmt"

// Layer is the layer that found an error (RFC 5040, 4.8).
type Layer uint8

const (
	RDMAP Layer = 0
	DDP   Layer = 1
	MPA   Layer = 2
)

func (l Layer) String() string {
	switch l {
	case RDMAP:
		return "RDMAP"
	case DDP:
		return "DDP"
	case MPA:
		return "MPA"
	}
	return fmt.Sprintf("layer %d", uint8(l))
}

// Codes of errors of MPA, whose type is 0 (RFC 5044, 8; RFC 6581, 8). Layer, type and code together are a ddp.Cause.
const (
	CodeClosed  = 1 // the TCP connection is closed, lost, or ended inside an FPDU
	CodeCRC     = 2 // the CRC is wrong
	CodeMarker  = 3 // the CRC is correct, but markers and lengths disagree
	CodeStartup = 4 // a start-up frame is wrong; the connection is closed at once
	CodeLocal   = 5 // local catastrophic error
	CodeIRD     = 6 // the peer needs a larger IRD
	CodeRTR     = 7 // no RTR message that both can use
)

// Error is an error of the stream, in the form of a Terminate message (RFC 5040, 4.8). A nil *Error means no error. An
// Error ends its stream: nothing that follows it is delivered.
type Error struct {
	Layer Layer
	Type  uint8 // error type, 4 bits on the wire
	Code  uint8
	// Detail describes, for an engineer, what was received and where. It is not sent.
	Detail string
}

// Newf returns an Error whose Detail is formatted like fmt.Sprintf.
func Newf(l Layer, typ, code uint8, format string, args ...any) *Error {
	return &Error{l, typ, code, fmt.Sprintf(format, args...)}
}

// Error returns the layer, type and code as in a Terminate, then the detail.
func (e *Error) Error() string {
	s := fmt.Sprintf("%v error (terminate %d/%d/%02x)", e.Layer, e.Layer, e.Type, e.Code)
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// Is reports whether target is an *Error with the same layer, type and code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t != nil && e != nil && t.Layer == e.Layer && t.Type == e.Type && t.Code == e.Code
}

// NotReady is the error of an mpa.Sink for a ULPDU in order that it can place later: no receive is posted yet. It ends
// no stream.
var NotReady = &Error{Layer: DDP, Type: 2, Detail: "no receive is posted yet"}

// Ref names one outgoing ULPDU of the layer above. MPA keeps it and returns it, and does not interpret it.
type Ref struct {
	ID  uint64
	Off uint32
}
