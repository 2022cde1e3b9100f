package wire

import (
	"encoding/binary"
	"math/bits"
)

// A running sum is a one's complement sum (RFC 1071) of bytes, read as little-endian words of 64 or 32 bits. Modulo
// 2^16-1 it equals the sum of words of 16 bits, and it is 0 only if all bytes are zero. Start with 0 or a pseudo-header
// sum, add each piece with Sum, then call Fold or Finish. Each piece must begin at an even offset of the checksummed
// bytes.

// Sum adds b to acc. Only the last piece may have an odd length.
func Sum(b []byte, acc uint64) uint64 {
	if len(b) == HeaderLen+TimestampsLen { // the header of nearly every segment
		w := (*[HeaderLen + TimestampsLen]byte)(b)
		acc, c := bits.Add64(acc, binary.LittleEndian.Uint64(w[0:]), 0)
		acc, c = bits.Add64(acc, binary.LittleEndian.Uint64(w[8:]), c)
		acc, c = bits.Add64(acc, binary.LittleEndian.Uint64(w[16:]), c)
		acc, c = bits.Add64(acc, binary.LittleEndian.Uint64(w[24:]), c)
		return addCarry(acc, c)
	}
	if wide && len(b) >= minWide {
		b, acc = sumWide(b, acc)
	}
	return sumScalar(b, acc)
}

// sumScalar is Sum without vectors.
func sumScalar(b []byte, acc uint64) uint64 {
	var c uint64
	for len(b) >= 64 {
		w := (*[64]byte)(b)
		acc, c = bits.Add64(acc, binary.LittleEndian.Uint64(w[0:]), c)
		acc, c = bits.Add64(acc, binary.LittleEndian.Uint64(w[8:]), c)
		acc, c = bits.Add64(acc, binary.LittleEndian.Uint64(w[16:]), c)
		acc, c = bits.Add64(acc, binary.LittleEndian.Uint64(w[24:]), c)
		acc, c = bits.Add64(acc, binary.LittleEndian.Uint64(w[32:]), c)
		acc, c = bits.Add64(acc, binary.LittleEndian.Uint64(w[40:]), c)
		acc, c = bits.Add64(acc, binary.LittleEndian.Uint64(w[48:]), c)
		acc, c = bits.Add64(acc, binary.LittleEndian.Uint64(w[56:]), c)
		acc, c = bits.Add64(acc, 0, c)
		b = b[64:]
	}
	for len(b) >= 8 {
		acc, c = bits.Add64(acc, binary.LittleEndian.Uint64(b), c)
		b = b[8:]
	}
	var last uint64
	for i, v := range b {
		last |= uint64(v) << (8 * i)
	}
	acc, c = bits.Add64(acc, last, c)
	return addCarry(acc, c)
}

func addCarry(acc, c uint64) uint64 {
	acc, c = bits.Add64(acc, c, 0)
	return acc + c
}

// Fold reduces acc to the 16-bit sum in host order. The result is 0xffff if the summed bytes include their correct
// checksum.
func Fold(acc uint64) uint16 {
	acc = acc>>32 + acc&0xffffffff
	acc = acc>>32 + acc&0xffffffff
	acc = acc>>16 + acc&0xffff
	acc = acc>>16 + acc&0xffff
	return bits.ReverseBytes16(uint16(acc))
}

// Right reports whether Fold(acc) is 0xffff: the checksum among the summed bytes is correct.
func Right(acc uint64) bool { return acc%0xffff == 0 && acc != 0 }

// Finish returns the checksum to send for the bytes summed in acc.
func Finish(acc uint64) uint16 { return ^Fold(acc) }

// PseudoSum4 returns the sum of the IPv4 pseudo-header for n bytes of protocol proto (RFC 9293, 3.1).
func PseudoSum4(src, dst [4]byte, proto uint8, n int) uint64 {
	return uint64(binary.LittleEndian.Uint32(src[:])) + uint64(binary.LittleEndian.Uint32(dst[:])) +
		uint64(proto)<<8 + uint64(bits.ReverseBytes16(uint16(n)))
}

// PseudoSum6 returns the sum of the IPv6 pseudo-header for n bytes of protocol proto (RFC 8200, 8.1).
func PseudoSum6(src, dst [16]byte, proto uint8, n int) uint64 {
	acc := Sum(dst[:], Sum(src[:], 0))
	acc, c := bits.Add64(acc, uint64(bits.ReverseBytes32(uint32(n)))+uint64(proto)<<24, 0)
	return addCarry(acc, c)
}
