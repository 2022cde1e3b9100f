// Package mpa implements Marker PDU Aligned framing for TCP (RFC 5044): FPDUs with CRC and markers. A Sender keeps
// FPDUs aligned with TCP segments. A Receiver finds, checks and places FPDUs from segments of any order and shape.
// Package mpa/startup negotiates the Framing of both directions first.
//
// Nothing here has a goroutine, a lock, a clock or I/O.
//
//	ULPDU of DDP      |len|      ULPDU      |pad|CRC|      one FPDU, RFC 5044 4.1
//	in the stream     |len| ULPDU |M| ULPDU |pad|CRC|      a marker M at each multiple of 512 bytes from the start
//
// The files are ordered by subject: receiver.go is the receiver's API, fastpath.go handles a segment that is exactly
// the next FPDU, islands.go the parts of the stream in order and behind holes, verdict.go the walk along their FPDUs,
// markers.go the markers, hold.go the bytes and records kept, cutdetector.go the peers that cut FPDUs. sender.go is the
// sender, fpdu.go and put.go write FPDUs, and vector.go collects them for writev.
package mpa
