package impair

import "encoding/binary"

// onesSum adds the 16-bit words of b to acc; an odd last octet counts as the high one of a word (RFC 1071).
func onesSum(acc uint64, b []byte) uint64 {
	for len(b) >= 4 {
		acc += uint64(binary.BigEndian.Uint32(b))
		b = b[4:]
	}
	if len(b) >= 2 {
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

// updated returns checksum after one 16-bit word of its data went from was to is (RFC 1624, equation 3).
func updated(checksum, was, is uint16) uint16 {
	return fold(uint64(^checksum) + uint64(^was) + uint64(is))
}

// transportSum returns the checksum over the packet's pseudo-header and its octets from the transport header on; 0
// when the checksum in it is right.
func transportSum(f []byte, v *view, proto byte) uint16 {
	l4 := f[v.l4:v.end]
	acc := uint64(proto) + uint64(len(l4))
	if v.v6 {
		acc = onesSum(acc, f[v.ip+8:v.ip+40])
	} else {
		acc = onesSum(acc, f[v.ip+12:v.ip+20])
	}
	return fold(onesSum(acc, l4))
}

// setTCPChecksum computes the checksum of a TCP segment anew.
func setTCPChecksum(f []byte, v *view) {
	field := f[v.l4+tcpChecksum : v.l4+tcpChecksum+2]
	field[0], field[1] = 0, 0
	binary.BigEndian.PutUint16(field, transportSum(f, v, protoTCP))
}

// setIPv4Checksum computes the checksum of the IPv4 header that begins at h[0].
func setIPv4Checksum(h []byte) {
	n := int(h[0]&15) * 4
	h[10], h[11] = 0, 0
	binary.BigEndian.PutUint16(h[10:], fold(onesSum(0, h[:n])))
}
