package control

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"xwarp/engine/verbs"
	"xwarp/mpa/ulpdu"
)

// Code says what kind of error a text is about, for programs.
type Code string

// The codes.
const (
	CodeInvalid    Code = "invalid"    // the request cannot be right
	CodeVersion    Code = "version"    // no common version
	CodeUnknown    Code = "unknown"    // no such op, device, export or handle
	CodePermission Code = "permission" // the daemon's configuration does not allow it
	CodeQuota      Code = "quota"      // the user has as much as the configuration allows: ENOMEM
	CodeBusy       Code = "busy"       // the object is in use
	CodeNotReady   Code = "not_ready"  // the queue pair is not connected
	CodeRejected   Code = "rejected"   // the peer's consumer said no
	CodeLapsed     Code = "lapsed"     // the connection request is answered or gone
	CodeClosed     Code = "closed"     // listener or device was closed
	CodeCanceled   Code = "canceled"   // by the client, or its time is up
	CodeFailed     Code = "failed"     // anything else: see the text
	CodeInternal   Code = "internal"   // a fault of the daemon
)

// Error is an error that crosses the socket. errors.Is finds the errors of the verbs in it, and its number.
type Error struct {
	Code  Code          `json:"code"`
	Text  string        `json:"text"`
	Errno syscall.Errno `json:"errno,omitempty"` // 0: none
	// PrivateData is that of the peer's consumer, with CodeRejected.
	PrivateData []byte `json:"private_data,omitempty"`
	// Terminate is what ended the connection, when that was a Terminate message.
	Terminate *Terminate `json:"terminate,omitempty"`
}

// Terminate is the content of a Terminate message (RFC 5040, 4.8).
type Terminate struct {
	Layer ulpdu.Layer `json:"layer"`
	Type  uint8       `json:"etype"`
	Code  uint8       `json:"code"`
}

func (e *Error) Error() string { return e.Text }

// Errorf returns an error with a code and a text.
func Errorf(c Code, format string, args ...any) error {
	return &Error{Code: c, Text: fmt.Sprintf(format, args...)}
}

// sentinels are the errors that errors.Is finds in an Error, by code.
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

// numbered are errors of the verbs that have a number of their own, and no code.
var numbered = []error{verbs.ErrHasConn, verbs.ErrStartup}

// Unwrap returns the errors of the code, and of the number.
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

// QuotaError is an error of package budget for a program; nil for nil.
func QuotaError(err error) error {
	if err == nil {
		return nil
	}
	return Errorf(CodeQuota, "%v", err)
}

// ErrorText is the text of an error; empty for none.
func ErrorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// AsError returns err as it crosses the socket; nil for nil.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	v := &Error{Code: CodeFailed, Text: err.Error()}
	var e *Error
	if errors.As(err, &e) {
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
	if r := (*verbs.Rejection)(nil); errors.As(err, &r) {
		v.PrivateData = r.PrivateData
	}
	if t := (*ulpdu.Error)(nil); errors.As(err, &t) {
		v.Terminate = &Terminate{t.Layer, t.Type, t.Code}
	}
	return v
}
