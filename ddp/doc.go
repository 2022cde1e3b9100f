// Package ddp is Direct Data Placement (RFC 5041): segment headers, registered
// memory behind steering tags, and the placement of payload.
//
// It is a set of values without clock, lock, goroutine or I/O. Everything here
// belongs to one worker; a Table and what hangs on it must not be shared between
// threads. Messages, queue pairs and delivery are the business of ddp/rdmap.
package ddp
