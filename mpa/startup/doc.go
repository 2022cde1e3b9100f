// Package startup is the start-up exchange of MPA: Request and Reply of RFC 5044, 7.1, with IRD, ORD and
// ready-to-receive messages of RFC 6581. An Initiator or a Responder is fed with the octets of the stream
// until it has Params; FPDUs begin with the next octet of either direction, and are package mpa's.
//
// Nothing here has a goroutine, a lock, a clock or I/O.
package startup
