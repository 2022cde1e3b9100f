package control

import (
	"context"
	"errors"

	"xwarp/ddp"
	"xwarp/engine"
	"xwarp/engine/iwarp"
)

// Code says what kind of error a text is about, for programs.
type Code string

// The codes.
const (
	CodeInvalid    Code = "invalid"    // the request cannot be right
	CodeVersion    Code = "version"    // no common version
	CodeUnknown    Code = "unknown"    // no such op, device, export or handle
	CodePermission Code = "permission" // the daemon's configuration does not allow it
	CodeQuota      Code = "quota"      // the user has as much as the configuration allows
	CodeBusy       Code = "busy"       // the object is in use
	CodeNotReady   Code = "not_ready"  // the queue pair is not connected
	CodeRejected   Code = "rejected"   // the peer's consumer said no
	CodeLapsed     Code = "lapsed"     // the connection request is answered or gone
	CodeClosed     Code = "closed"     // listener or device was closed
	CodeCanceled   Code = "canceled"   // by the client, or its time is up
	CodeFailed     Code = "failed"     // anything else: see the text
	CodeInternal   Code = "internal"   // a fault of the daemon
)

// Error is an error that crosses the socket. errors.Is finds the engine's own errors in it.
type Error struct {
	Code Code   `json:"code"`
	Text string `json:"text"`
}

func (e *Error) Error() string { return e.Text }

// sentinels are what errors.Is finds in an Error, by code. The first of a code is the one that a client sees.
var sentinels = []struct {
	code Code
	err  error
}{
	{CodeRejected, iwarp.ErrRejected},
	{CodeLapsed, engine.ErrLapsed},
	{CodeClosed, engine.ErrListenerClosed},
	{CodeClosed, engine.ErrClosed},
	{CodeNotReady, engine.ErrNotReady},
	{CodeBusy, ddp.ErrBusy},
	{CodePermission, engine.ErrPeerDenied},
	{CodeCanceled, context.Canceled},
	{CodeCanceled, context.DeadlineExceeded},
	{CodeInvalid, ErrFrame},
}

// Is lets errors.Is see the engine's errors.
func (e *Error) Is(target error) bool {
	for _, s := range sentinels {
		if s.code == e.Code && s.err == target {
			return true
		}
	}
	return false
}

// AsError returns err as it crosses the socket; nil for nil.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return &Error{e.Code, err.Error()}
	}
	for _, s := range sentinels {
		if errors.Is(err, s.err) {
			return &Error{s.code, err.Error()}
		}
	}
	return &Error{CodeFailed, err.Error()}
}
