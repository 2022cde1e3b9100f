package impair

import "encoding/binary"

// What the tests know of headers and checksums is their own.
const (
	ethHeader   = 14
	ipv6Header  = 40
	protoICMPv6 = 58
)

// onesSum adds the 16-bit words of b to acc; an odd last byte counts as the high one of a word (RFC 1071).
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

// fold ends a sum: the ones' complement of its 16-bit ones' complement form.
func fold(acc uint64) uint16 {
	for acc>>16 != 0 {
		acc = acc&0xffff + acc>>16
	}
	return ^uint16(acc)
}

// transportSum returns the checksum over the packet's pseudo-header and its bytes from the transport header on; 0
// when the checksum in it is right.
func transportSum(f []byte, v *view, proto byte) uint16 {
	l4 := f[v.l4:v.end]
	addresses := f[v.ip+12 : v.ip+20]
	if v.v6 {
		addresses = f[v.ip+8 : v.ip+40]
	}
	return fold(onesSum(onesSum(uint64(proto)+uint64(len(l4)), addresses), l4))
}

// Held returns the number of frames inside, replies not counted.
func (p *Path) Held() int {
	return p.recut.held() + p.line.frames.n + len(p.reorder) + p.ready.n
}

// held returns the number of segments inside.
func (r *recutter) held() (n int) {
	for _, x := range r.active {
		n += len(x.bufs)
	}
	return n
}
