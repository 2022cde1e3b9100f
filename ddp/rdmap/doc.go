// Package rdmap is the Remote Direct Memory Access Protocol (RFC 5040) with its extensions
// (RFC 7306): messages, queue pairs, Terminate.
//
// A QP stands between the verbs above and MPA below. It implements mpa.Source (ULPDUs are
// made from work requests on demand, and made again for retransmission) and mpa.Sink (payload
// is placed when it arrives; messages are delivered in stream order). It has no clock, lock,
// goroutine or I/O; all calls come from the one worker that owns it.
package rdmap
