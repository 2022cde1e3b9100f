package control

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"xwarp/engine/verbs"
	"xwarp/mpa/ulpdu"
)

// Code is the kind of an error, for programs.
type Code string

// The codes.
const (
	CodeInvalid    Code = "invalid"    // malformed request or argument
	CodeVersion    Code = "version"    // no common version
	CodeUnknown    Code = "unknown"    // no such op, device, export or handle
	CodePermission Code = "permission" // not allowed by the daemon's configuration, or only to the operator
	CodeQuota      Code = "quota"      // limit of the user reached: ENOMEM
	CodeBusy       Code = "busy"       // the object is in use
	CodeNotReady   Code = "not_ready"  // not possible yet, such as on a queue pair without a connection
	CodeRejected   Code = "rejected"   // rejected by the peer's consumer
	CodeLapsed     Code = "lapsed"     // the connection request was answered or is gone
	CodeClosed     Code = "closed"     // the listener or the device is closed, or the daemon is stopping
	CodeCanceled   Code = "canceled"   // the client canceled the request, or it timed out
	CodeFailed     Code = "failed"     // any other reason, see the text
	CodeInternal   Code = "internal"   // error of the daemon
)

// Error is an error sent over the socket. errors.Is matches it with its errno, and with the errors of the verbs that
// its code stands for.
type Error struct {
	Code  Code          `json:"code"`
	Text  string        `json:"text"`
	Errno syscall.Errno `json:"errno,omitempty"` // 0: none
	// PrivateData is the private data of the peer's consumer, with CodeRejected.
	PrivateData []byte `json:"private_data,omitempty"`
	// Terminate is the Terminate message that ended the connection, if any.
	Terminate *Terminate `json:"terminate,omitempty"`
}

// Terminate is the content of a Terminate message (RFC 5040, 4.8).
type Terminate struct {
	Layer ulpdu.Layer `json:"layer"`
	Type  uint8       `json:"etype"`
	Code  uint8       `json:"code"`
}

func (e *Error) Error() string { return e.Text }

// Errorf returns an error with a code and a formatted text.
func Errorf(c Code, format string, args ...any) error {
	return &Error{Code: c, Text: fmt.Sprintf(format, args...)}
}

// sentinels are the errors that a code stands for. AsError finds the code of an error here, and Error.Unwrap the errors
// of a code.
var sentinels = []struct {
	code Code
	err  error
}{
	{CodeRejected, verbs.ErrRejected},
	{CodeLapsed, verbs.ErrLapsed},
	{CodeClosed, verbs.ErrListenerClosed},
	{CodeClosed, verbs.ErrClosed},
	{CodeNotReady, verbs.ErrNotReady},
	{CodeBusy, verbs.ErrBusy},
	{CodePermission, verbs.ErrPeerDenied},
	{CodeCanceled, context.Canceled},
	{CodeCanceled, context.DeadlineExceeded},
	{CodeInvalid, ErrFrame},
	{CodeInvalid, verbs.ErrInvalid},
}

// numbered are the errors of the verbs that Error.Unwrap finds by their errno, because they have no code of their own.
var numbered = []error{verbs.ErrHasConn, verbs.ErrStartup}

// Unwrap returns the errors that e stands for: those of its code, of its Terminate message and of its errno.
func (e *Error) Unwrap() (all []error) {
	for _, s := range sentinels {
		if s.code == e.Code {
			all = append(all, s.err)
		}
	}
	if e.Code == CodeRejected {
		all = append(all, &verbs.Rejection{PrivateData: e.PrivateData})
	}
	if e.Terminate != nil {
		all = append(all, ulpdu.Newf(e.Terminate.Layer, e.Terminate.Type, e.Terminate.Code, "%s",
			e.Text))
	}
	if e.Errno == 0 {
		return all
	}
	for _, n := range numbered {
		if errors.Is(n, e.Errno) {
			all = append(all, n)
		}
	}
	return append(all, e.Errno)
}

// QuotaError converts an error of package budget to an Error with CodeQuota. It returns nil for nil.
func QuotaError(err error) error {
	if err == nil {
		return nil
	}
	return Errorf(CodeQuota, "%v", err)
}

// AsError converts err for sending over the socket. It returns nil for nil.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	v := &Error{Code: CodeFailed, Text: err.Error()}
	if e, ok := errors.AsType[*Error](err); ok {
		v.Code = e.Code
	} else {
		for _, s := range sentinels {
			if errors.Is(err, s.err) {
				v.Code = s.code
				break
			}
		}
	}
	if !errors.As(verbs.Wrap("", err), &v.Errno) && v.Code == CodeQuota {
		v.Errno = syscall.ENOMEM
	}
	if r, ok := errors.AsType[*verbs.Rejection](err); ok {
		v.PrivateData = r.PrivateData
	}
	if t, ok := errors.AsType[*ulpdu.Error](err); ok {
		v.Terminate = &Terminate{t.Layer, t.Type, t.Code}
	}
	return v
}
