// Package mpa is Marker PDU Aligned framing for TCP (RFC 5044) with the enhanced connection set-up of RFC
// 6581: the start-up exchange, FPDUs with their CRC and markers, a sender that keeps FPDUs aligned with TCP
// segments and a receiver that finds, checks and places FPDUs in whatever order and shape segments come.
//
// Nothing here has a goroutine, a lock, a clock or I/O. An Initiator or a Responder is fed with the octets of
// the stream until it has Params; from that octet on a Sender and a Receiver per direction work on sequence
// numbers.
//
//	ULPDU of DDP      |len|      ULPDU      |pad|CRC|      one FPDU, RFC 5044 4.1
//	in the stream     |len| ULPDU |M| ULPDU |pad|CRC|      a marker M at each multiple of 512 octets from the start
package mpa
