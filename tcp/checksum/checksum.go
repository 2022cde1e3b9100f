// Package checksum computes the checksums of MPA and TCP: CRC32C alone, or CRC32C and the Internet checksum in one
// pass, optionally while copying. On amd64 and arm64 it uses CRC32 instructions on three parts of the bytes at a time,
// because the standard library works on parts of fixed length on amd64 and on one part on arm64. On amd64 with AVX-512
// and VPCLMULQDQ it folds lines of 64 bytes instead (fold_amd64.s). Other processors use Go code.
package checksum

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRC returns the CRC32C of b appended to the bytes with CRC crc, which is 0 for no bytes.
func CRC(crc uint32, b []byte) uint32 {
	if !fast {
		return crc32.Update(crc, castagnoli, b)
	}
	return crcFast(crc, b)
}

// Known is the CRC32C of some bytes, if it was computed together with another sum of them.
type Known struct {
	CRC   uint32
	Valid bool
}

// Sum is CRC that also returns the one's complement sum (RFC 1071) of the bytes that sum covers followed by b, as a
// running sum of little-endian words of 64 bits. sum covers an even number of bytes.
func Sum(b []byte, crc uint32, sum uint64) (uint32, uint64) {
	if !fast {
		return sumPlain(b, crc, sum)
	}
	return sumFast(b, crc, sum)
}

// CopySum copies src to dst, which is at least as long and does not overlap it, and returns Sum of the bytes of dst,
// even if src changes meanwhile. Where it is worthwhile it prefetches memory ahead bytes further on; it reads nothing
// there, so any ahead is safe.
func CopySum(dst, src []byte, crc uint32, sum uint64, ahead int) (uint32, uint64) {
	dst = dst[:len(src)]
	if !fast {
		copy(dst, src)
		return sumPlain(dst, crc, sum)
	}
	return copyFast(dst, src, crc, sum, ahead)
}

// The blocks of CopyMarked.
const (
	blockLen = 512
	markLen  = 4
	// MinMarked is the smallest number of bytes from which CopyMarked makes blocks.
	MinMarked = 3 * (blockLen - markLen)
)

// CopyMarked copies as many bytes of src[at:] to dst as fit whole blocks and are worthwhile: each block is a
// word, the big-endian value mark and 512 more in each further one, and 508 bytes. It returns how many
// bytes of dst that makes, a multiple of 512, and Sum of them. at is at least 4; ahead is that of CopySum.
func CopyMarked(dst, src []byte, at int, mark, crc uint32, sum uint64, ahead int) (int, uint32,
	uint64) {
	blocks := min((len(src)-at)/MinMarked, len(dst)/(3*blockLen), maxBlocks)
	if !fast || blocks <= 0 || at < markLen {
		return 0, crc, sum
	}
	crc, sum = markedFast(dst, src[at-markLen:], blocks, mark, crc, sum, ahead)
	return 3 * blocks * blockLen, crc, sum
}

// Prefetch asks the processor to bring b into its cache, where it can.
func Prefetch(b []byte) {
	if len(b) > 0 {
		prefetch(b)
	}
}

// sumPlain is Sum in Go.
func sumPlain(b []byte, crc uint32, sum uint64) (uint32, uint64) {
	crc = crc32.Update(crc, castagnoli, b)
	for len(b) >= 8 {
		sum = Add(sum, binary.LittleEndian.Uint64(b))
		b = b[8:]
	}
	var last uint64
	for i, v := range b {
		last |= uint64(v) << (8 * i)
	}
	return crc, Add(sum, last)
}

// Add adds a word, or a running sum, to a running sum. Its first byte must be at an even offset of the whole.
func Add(sum, word uint64) uint64 {
	sum, c := bits.Add64(sum, word, 0)
	return sum + c // at most 2^64-2 before: this carries no more
}
