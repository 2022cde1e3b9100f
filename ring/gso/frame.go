package gso

import (
	"bytes"
	"encoding/binary"
)

const (
	ethernet   = 14
	ipHeader   = 20 // without options
	ipv6Header = 40
	typeIPv4   = 0x0800
	typeIPv6   = 0x86dd
	protoTCP   = 6
	tcpMin     = 20

	// Offsets in a TCP header.
	seqAt      = 4
	lengthAt   = 12
	flagsAt    = 13
	checksumAt = 16

	flagPSH = 0x08
	flagACK = 0x10
	flagECE = 0x40

	// MaxBlock is octets of the longest frame: its IP packet's length has 16 bits.
	MaxBlock = ethernet + 65535
)

// segment is a frame that may be joined with others.
type segment struct {
	Shape
	seq uint32
	psh bool
}

// parse reports whether frame holds a TCP segment with octets and no flags but ACK, PSH and ECE: what a block is made of.
// Tagged frames, IP options and fragments are not.
func parse(frame []byte) (s segment, ok bool) {
	if len(frame) < ethernet+ipHeader+tcpMin {
		return s, false
	}
	s.IPAt = ethernet
	h := frame[ethernet:]
	switch binary.BigEndian.Uint16(frame[12:]) {
	case typeIPv4:
		const fragment = 0x3fff // more fragments, or an offset
		if h[0] != 0x45 || h[9] != protoTCP || binary.BigEndian.Uint16(h[6:])&fragment != 0 || int(binary.BigEndian.Uint16(h[2:])) != len(h) {
			return s, false
		}
	case typeIPv6:
		s.IPv6 = true
		if len(h) < ipv6Header+tcpMin || h[6] != protoTCP || int(binary.BigEndian.Uint16(h[4:])) != len(h)-ipv6Header {
			return s, false
		}
	default:
		return s, false
	}
	t := frame[s.tcpAt():]
	s.Headers = s.tcpAt() + int(t[lengthAt]>>4)*4
	s.Payload = len(frame) - s.Headers
	s.seq, s.psh = binary.BigEndian.Uint32(t[seqAt:]), t[flagsAt]&flagPSH != 0
	// The kernel clears CWR in all segments but the first, as classic ECN wants it and accurate ECN does not.
	return s, s.Headers >= s.tcpAt()+tcpMin && s.Payload > 0 && t[flagsAt]&^(flagPSH|flagECE) == flagACK
}

// follows reports whether the segment t in the frame next has the headers of the segment s in the frame first, but for what
// the kernel writes into each itself: lengths, identification, sequence number, checksums, and PSH, which only
// the last one keeps (RFC 9293, 3.9.1: successive PSH may be collapsed).
func (s *segment) follows(first, next []byte, t *segment) bool {
	if t.Headers != s.Headers || t.IPv6 != s.IPv6 {
		return false
	}
	same := func(from, to int) bool { return bytes.Equal(first[from:to], next[from:to]) }
	at := s.tcpAt()
	if s.IPv6 {
		if !same(0, ethernet+4) || !same(ethernet+6, at) {
			return false
		}
	} else if !same(0, ethernet+2) || !same(ethernet+6, ethernet+10) || !same(ethernet+12, at) {
		return false
	}
	if (first[at+flagsAt]^next[at+flagsAt])&^flagPSH != 0 {
		return false
	}
	return same(at, at+seqAt) && same(at+seqAt+4, at+flagsAt) && same(at+flagsAt+1, at+checksumAt) && same(at+checksumAt+2, s.Headers)
}
