package checksum

import "golang.org/x/sys/cpu"

// wide reports whether the processor has carry-less multiplication in 512-bit registers.
var wide = fast && cpu.X86.HasAVX512VPCLMULQDQ && cpu.X86.HasAVX512F && cpu.X86.HasAVX512DQ

// factors are the constants that move a folded CRC on by 256, 64, 128 and 192 bytes, in this order; see distance.
type factors [4][2]uint64

var folds = factors{distance(256), distance(64), distance(128), distance(192)}

// distance returns the factors that move the low and the high word of 128 bits on by n bytes.
func distance(n int) [2]uint64 { return [2]uint64{power(8*n + 32), power(8*n - 32)} }

// power returns x^n modulo the CRC's polynomial, in bits 1 to 32: bit 32 is x^0, lower bits are higher powers. Bit 32
// instead of 31 compensates for the product of two such 64-bit words, which has 127 bits instead of 128.
func power(n int) uint64 {
	v := uint32(1) << 31
	for range n {
		v = v>>1 ^ -(v&1)&0x82f63b78
	}
	return uint64(v) << 1
}

// foldSum is Sum for a number of lines of 64 bytes, at least minLines. Argument and result crc is the CRC register, the
// complement of a CRC.
//
//go:noescape
func foldSum(src *byte, lines int, k *factors, crc uint32, sum uint64) (uint32, uint64)

// foldCopy is foldSum that also copies the lines from src to dst, and prefetches src ahead bytes further on.
//
//go:noescape
func foldCopy(dst, src *byte, lines, ahead int, k *factors, crc uint32, sum uint64) (uint32, uint64)

func sumLines(src *byte, lines int, crc uint32, sum uint64) (uint32, uint64) {
	return foldSum(src, lines, &folds, crc, sum)
}

func copyLines(dst, src *byte, lines, ahead int, crc uint32, sum uint64) (uint32, uint64) {
	return foldCopy(dst, src, lines, ahead, &folds, crc, sum)
}

// foldMarked is markedLanes for a number of consecutive blocks, at least 1, instead of three lanes.
//
//go:noescape
func foldMarked(dst, src *byte, blocks, ahead int, mark uint32, k *factors, crc uint32,
	sum uint64) (uint32, uint64)

func markLines(dst, src *byte, blocks, ahead int, mark, crc uint32, sum uint64) (uint32, uint64) {
	return foldMarked(dst, src, blocks, ahead, mark, &folds, crc, sum)
}
