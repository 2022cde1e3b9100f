package gso

import "encoding/binary"

const (
	ethernet   = 14
	ipHeader   = 20 // without options
	ipv6Header = 40
	tcpMin     = 20
	protoTCP   = 6

	// Offsets in a TCP header.
	seqAt      = 4
	flagsAt    = 13
	checksumAt = 16

	flagPSH = 0x08

	// MaxBlock is octets of the longest frame, so that neither its IP packet's length needs more than 16 bits
	// nor the frame more than what interfaces take at a time (gso_max_size, ip-link(8)).
	MaxBlock = 65535
)

// Shape says how a block is cut.
type Shape struct {
	IPAt    int // octets before the IP header
	Headers int // octets of all headers
	Payload int // octets of TCP payload in each segment but the last, which may be shorter
	IPv6    bool
}

func (s *Shape) tcpAt() int {
	if s.IPv6 {
		return s.IPAt + ipv6Header
	}
	return s.IPAt + ipHeader
}

// Segments returns how many segments a block of n octets is cut into.
func (s *Shape) Segments(n int) int { return (n - s.Headers + s.Payload - 1) / s.Payload }

// Segment appends to dst the frame of the i-th segment as the kernel cuts it from block, with all checksums. It is for
// those who look at frames; Sender.Send needs none of it.
func (s *Shape) Segment(dst, block []byte, i int) []byte {
	from := s.Headers + i*s.Payload
	end := min(len(block), from+s.Payload)
	at := len(dst)
	dst = append(append(dst, block[:s.Headers]...), block[from:end]...)
	h, t := dst[at+s.IPAt:], dst[at+s.tcpAt():]
	binary.BigEndian.PutUint32(t[seqAt:], binary.BigEndian.Uint32(t[seqAt:])+uint32(i*s.Payload))
	if end < len(block) {
		t[flagsAt] &^= flagPSH
	}
	addresses := h[8:40]
	if s.IPv6 {
		binary.BigEndian.PutUint16(h[4:], uint16(len(t)))
	} else {
		addresses = h[12:20]
		binary.BigEndian.PutUint16(h[2:], uint16(len(h)))
		binary.BigEndian.PutUint16(h[4:], binary.BigEndian.Uint16(h[4:])+uint16(i))
		binary.BigEndian.PutUint16(h[10:], 0)
		binary.BigEndian.PutUint16(h[10:], ^sum(h[:ipHeader], 0))
	}
	binary.BigEndian.PutUint16(t[checksumAt:], 0)
	binary.BigEndian.PutUint16(t[checksumAt:], ^sum(t, uint32(pseudoSum(addresses, len(t)))))
	return dst
}

// pseudoSum is the one's complement sum of TCP's pseudo header, not inverted.
func pseudoSum(addresses []byte, segment int) uint16 {
	return sum(addresses, uint32(protoTCP+segment))
}

// sum adds b, of at most 65535 octets, to a one's complement sum.
func sum(b []byte, sum uint32) uint16 {
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}
