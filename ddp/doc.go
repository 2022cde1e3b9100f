// Package ddp implements Direct Data Placement (RFC 5041): segment headers, registered memory behind steering tags, and
// the placement of payload.
//
// It holds values without clock, lock, goroutine or I/O. Each value belongs to one worker: a Table and everything that
// refers to it must not be shared between threads. Package ddp/rdmap implements messages, queue pairs and delivery.
package ddp
