package gso

import (
	"encoding/binary"

	"xwarp/ring"
	"xwarp/tcp/ip"
	"xwarp/tcp/wire"
)

const (
	// MaxBlock is the maximum length of a block in bytes, with its headers. The length of its IP packet must fit 16
	// bits, and the block must not exceed what interfaces accept at a time (gso_max_size, ip-link(8)).
	MaxBlock = 65535
)

// Shape is ring.Shape with the methods that cut a block.
type Shape ring.Shape

func (s *Shape) tcpAt() int {
	if s.IPv6 {
		return s.IPAt + ip.Len6
	}
	return s.IPAt + ip.Len4
}

// Segments returns how many segments a block of n bytes is cut into.
func (s *Shape) Segments(n int) int { return (n - s.Headers + s.Payload - 1) / s.Payload }

// Segment appends to dst the frame of the i-th segment as the kernel cuts it from block, with all checksums. Decorators
// that inspect frames use it; Sender.Send does not need it.
func (s *Shape) Segment(dst, block []byte, i int) []byte {
	from := s.Headers + i*s.Payload
	end := min(len(block), from+s.Payload)
	at := len(dst)
	dst = append(append(dst, block[:s.Headers]...), block[from:end]...)
	h, t := dst[at+s.IPAt:], dst[at+s.tcpAt():]
	first := binary.BigEndian.Uint32(t[wire.SeqAt:])
	binary.BigEndian.PutUint32(t[wire.SeqAt:], first+uint32(i*s.Payload))
	if end < len(block) {
		t[wire.FlagsAt+1] &^= byte(wire.PSH)
	}
	if s.IPv6 {
		binary.BigEndian.PutUint16(h[4:], uint16(len(t)))
	} else {
		binary.BigEndian.PutUint16(h[2:], uint16(len(h)))
		binary.BigEndian.PutUint16(h[4:], binary.BigEndian.Uint16(h[4:])+uint16(i))
		binary.BigEndian.PutUint16(h[10:], 0)
		binary.BigEndian.PutUint16(h[10:], wire.Finish(wire.Sum(h[:ip.Len4], 0)))
	}
	wire.PutChecksum(t, 0)
	wire.PutChecksum(t, wire.Finish(wire.Sum(t, s.pseudoSum(h, len(t)))))
	return dst
}

// pseudoSum returns the running sum of TCP's pseudo-header for a TCP segment of n bytes that follows IP header h.
func (s *Shape) pseudoSum(h []byte, n int) uint64 {
	if s.IPv6 {
		return wire.PseudoSum6([16]byte(h[8:]), [16]byte(h[24:]), ip.ProtoTCP, n)
	}
	return wire.PseudoSum4([4]byte(h[12:]), [4]byte(h[16:]), ip.ProtoTCP, n)
}
