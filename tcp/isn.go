package tcp

import (
	"encoding/binary"
	"math/bits"

	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// ISN returns an initial sequence number for t (RFC 6528, 3): a clock with a period of 4 µs plus a hash of t under key,
// which must be secret and random. For the same t it grows with time, so that a new connection begins beyond the
// numbers of the previous one.
func ISN(key *[16]byte, t *Tuple, now tick.Time) seq.Num {
	return seq.Num(uint32(int64(now)/int64(4*tick.Microsecond)) + uint32(t.hash(key, 0)))
}

// TSOffset returns a timestamp offset for t under key (RFC 7323, 5.4).
func TSOffset(key *[16]byte, t *Tuple) uint32 { return uint32(t.hash(key, 1) >> 32) }

// hash returns SipHash-2-4 of t and use, which differs between the purposes of the hash.
func (t *Tuple) hash(key *[16]byte, use uint64) uint64 {
	var b [48]byte
	copy(b[0:], t.Local[:])
	copy(b[16:], t.Remote[:])
	binary.LittleEndian.PutUint16(b[32:], t.LocalPort)
	binary.LittleEndian.PutUint16(b[34:], t.RemotePort)
	binary.LittleEndian.PutUint64(b[40:], use)
	return sipHash(key, b[:])
}

// sipHash returns SipHash-2-4 of p (Aumasson and Bernstein).
func sipHash(key *[16]byte, p []byte) uint64 {
	k0, k1 := binary.LittleEndian.Uint64(key[:8]), binary.LittleEndian.Uint64(key[8:])
	v0, v1 := k0^0x736f6d6570736575, k1^0x646f72616e646f6d
	v2, v3 := k0^0x6c7967656e657261, k1^0x7465646279746573
	round := func() {
		v0 += v1
		v2 += v3
		v1 = bits.RotateLeft64(v1, 13) ^ v0
		v3 = bits.RotateLeft64(v3, 16) ^ v2
		v0 = bits.RotateLeft64(v0, 32)
		v2 += v1
		v0 += v3
		v1 = bits.RotateLeft64(v1, 17) ^ v2
		v3 = bits.RotateLeft64(v3, 21) ^ v0
		v2 = bits.RotateLeft64(v2, 32)
	}
	last := uint64(len(p)) << 56
	for ; len(p) >= 8; p = p[8:] {
		m := binary.LittleEndian.Uint64(p)
		v3 ^= m
		round()
		round()
		v0 ^= m
	}
	for i, b := range p {
		last |= uint64(b) << (8 * i)
	}
	v3 ^= last
	round()
	round()
	v0 ^= last
	v2 ^= 0xff
	for range 4 {
		round()
	}
	return v0 ^ v1 ^ v2 ^ v3
}
