// Package rdmap implements the Remote Direct Memory Access Protocol (RFC 5040) with its extensions (RFC 7306):
// messages, queue pairs, Terminate.
//
// A QP is between the verbs above and MPA below. It implements mpa.Source: it makes ULPDUs from work requests on
// demand, and makes them again for retransmission. It implements mpa.Sink: it places payload when it arrives, and
// delivers messages in stream order. It has no clock, lock, goroutine or I/O; all calls come from the one worker that
// owns it.
package rdmap
