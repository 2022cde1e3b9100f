// Package checksum computes the checksums of MPA and TCP: CRC32C alone, or CRC32C and the Internet checksum in one
// pass, optionally while copying. On amd64 and arm64 it divides the bytes into three lanes of equal length and
// interleaves their CRC32 instructions. The standard library uses parts of fixed length on amd64 and one part on arm64.
// On amd64 with AVX-512 and VPCLMULQDQ this package folds lines of 64 bytes instead (fold_amd64.s). Other processors
// use Go code.
package checksum

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRC extends crc, the CRC32C of some bytes, by the bytes of b. The CRC32C of no bytes is 0.
func CRC(crc uint32, b []byte) uint32 {
	if !fast {
		return crc32.Update(crc, castagnoli, b)
	}
	return crcFast(crc, b)
}

// Known is the CRC32C of some bytes. Valid reports whether it was computed, together with another sum of these bytes.
type Known struct {
	CRC   uint32
	Valid bool
}

// Sum extends two checksums by the bytes of b: crc, as CRC does, and sum, the one's complement sum (RFC 1071) as a
// running sum of little-endian 64-bit words. The number of bytes in sum before b must be even.
func Sum(b []byte, crc uint32, sum uint64) (uint32, uint64) {
	if !fast {
		return sumPlain(b, crc, sum)
	}
	return sumFast(b, crc, sum)
}

// CopySum copies src to dst and extends crc and sum by the copied bytes, as Sum does. The result is right for dst even
// if src changes meanwhile. dst is at least as long as src and does not overlap it. On amd64 CopySum prefetches the
// source memory ahead bytes further on. A prefetch never faults, so any ahead is safe.
func CopySum(dst, src []byte, crc uint32, sum uint64, ahead int) (uint32, uint64) {
	dst = dst[:len(src)]
	if !fast {
		copy(dst, src)
		return sumPlain(dst, crc, sum)
	}
	return copyFast(dst, src, crc, sum, ahead)
}

// Lengths in bytes of a block of CopyMarked, and of the marker at its start.
const (
	blockLen = 512
	markLen  = 4
	// MinMarked is the smallest number of bytes of src[at:] from which CopyMarked makes blocks.
	MinMarked = 3 * (blockLen - markLen)
)

// CopyMarked copies src[at:] to dst in blocks of 512 bytes: a big-endian marker and 508 bytes of src. The first marker
// is mark, and each further one is 512 more. The number of blocks is a multiple of three, as many as src and dst allow
// up to an internal limit, possibly zero. CopyMarked returns the number of bytes written to dst, and crc and sum
// extended by them. at must be at least 4; ahead is as for CopySum.
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

// sumPlain is Sum in portable Go.
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

// Add adds word, a little-endian word or a running sum of further bytes, to the running sum sum. The bytes of word must
// begin at an even offset of all summed bytes.
func Add(sum, word uint64) uint64 {
	sum, c := bits.Add64(sum, word, 0)
	return sum + c // if c is 1, sum is at most 2^64-2: no second carry
}
