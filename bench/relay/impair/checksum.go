package impair

import (
	"encoding/binary"

	"xwarp/tcp/ip"
	"xwarp/tcp/wire"
)

// updated returns the new value of checksum after one 16-bit word of its data changed from was to is (RFC 1624,
// equation 3).
func updated(checksum, was, is uint16) uint16 {
	sum := uint32(^checksum) + uint32(^was) + uint32(is)
	sum = sum>>16 + sum&0xffff
	return ^uint16(sum>>16 + sum)
}

// tcpSum returns the checksum over a TCP segment, its checksum field included, and the pseudo-header. It returns 0 if
// the field is right.
func tcpSum(f []byte, v *view) uint16 {
	segment := f[v.l4:v.end]
	var acc uint64
	if v.v6 {
		acc = wire.PseudoSum6([16]byte(f[v.ip+8:]), [16]byte(f[v.ip+24:]), ip.ProtoTCP,
			len(segment))
	} else {
		acc = wire.PseudoSum4([4]byte(f[v.ip+12:]), [4]byte(f[v.ip+16:]), ip.ProtoTCP, len(segment))
	}
	return wire.Finish(wire.Sum(segment, acc))
}

// setTCPChecksum computes the checksum of the TCP segment in f and writes it into the header.
func setTCPChecksum(f []byte, v *view) {
	wire.PutChecksum(f[v.l4:], 0)
	wire.PutChecksum(f[v.l4:], tcpSum(f, v))
}

// setIPv4Checksum computes the checksum of the IPv4 header that begins at h[0] and writes it into the header.
func setIPv4Checksum(h []byte) {
	n := int(h[0]&15) * 4
	h[10], h[11] = 0, 0
	binary.BigEndian.PutUint16(h[10:], wire.Finish(wire.Sum(h[:n], 0)))
}
