// Package startup implements the start-up exchange of MPA: Request and Reply of RFC 5044, 7.1, with the IRD, ORD and
// ready-to-receive messages of RFC 6581. The caller passes the bytes of the stream to an Initiator or a Responder until
// it has Params. FPDUs begin with the next byte of either direction; package mpa handles them.
//
// Nothing here has a goroutine, a lock, a clock or I/O.
package startup
