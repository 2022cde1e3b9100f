// Package mpa is Marker PDU Aligned framing for TCP (RFC 5044): FPDUs with their CRC and markers, a Sender that keeps
// FPDUs aligned with TCP segments, and a Receiver that finds, checks and places FPDUs in whatever order and shape
// segments come. Package mpa/startup agrees on the Framing of both directions before.
//
// Nothing here has a goroutine, a lock, a clock or I/O.
//
//	ULPDU of DDP      |len|      ULPDU      |pad|CRC|      one FPDU, RFC 5044 4.1
//	in the stream     |len| ULPDU |M| ULPDU |pad|CRC|      a marker M at each multiple of 512 octets from the start
package mpa
