package impair

import "encoding/binary"

// The tests have their own constants and checksum functions, so that they do not share mistakes with the code.
const (
	ethHeader   = 14
	ipv6Header  = 40
	protoICMPv6 = 58
)

// onesSum returns acc plus the 16-bit words of b. An odd last byte is the high byte of a word (RFC 1071).
func onesSum(acc uint64, b []byte) uint64 {
	for len(b) >= 2 {
		acc += uint64(binary.BigEndian.Uint16(b))
		b = b[2:]
	}
	if len(b) == 1 {
		acc += uint64(b[0]) << 8
	}
	return acc
}

// fold returns the checksum for a sum of 16-bit words: it adds the carries and complements the result.
func fold(acc uint64) uint16 {
	for acc>>16 != 0 {
		acc = acc&0xffff + acc>>16
	}
	return ^uint16(acc)
}

// transportSum returns the checksum over the packet's pseudo-header and its bytes from the transport header on. It
// returns 0 if the checksum in the packet is right.
func transportSum(f []byte, v *view, proto byte) uint16 {
	l4 := f[v.l4:v.end]
	addresses := f[v.ip+12 : v.ip+20]
	if v.v6 {
		addresses = f[v.ip+8 : v.ip+40]
	}
	return fold(onesSum(onesSum(uint64(proto)+uint64(len(l4)), addresses), l4))
}

// Held returns the number of frames inside the path. It does not count replies.
func (p *Path) Held() int {
	return p.recut.held() + p.line.frames.n + len(p.reorder) + p.ready.n
}

// held returns the number of segments that are held for re-cutting.
func (r *recutter) held() (n int) {
	for _, x := range r.active {
		n += len(x.bufs)
	}
	return n
}
