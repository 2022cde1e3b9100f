package checksum

import "golang.org/x/sys/cpu"

// wide says that the processor multiplies polynomials in registers of 512 bits.
var wide = fast && cpu.X86.HasAVX512VPCLMULQDQ && cpu.X86.HasAVX512F && cpu.X86.HasAVX512DQ

// factors move a folded CRC on by 256, 64, 128 and 192 bytes; see power.
type factors [4][2]uint64

var folds = factors{distance(256), distance(64), distance(128), distance(192)}

// distance returns the factors of the low and the high word of 128 bits for a step of n bytes.
func distance(n int) [2]uint64 { return [2]uint64{power(8*n + 32), power(8*n - 32)} }

// power returns x^n modulo the polynomial, with x^0 in bit 32: a product of two words of which the lowest bit is
// the highest power has one bit less than 128.
func power(n int) uint64 {
	v := uint32(1) << 31
	for range n {
		v = v>>1 ^ -(v&1)&0x82f63b78
	}
	return uint64(v) << 1
}

// foldSum is Sum of a number of lines of 64 bytes, at least minLines, with the bare CRC register.
//
//go:noescape
func foldSum(src *byte, lines int, k *factors, crc uint32, sum uint64) (uint32, uint64)

// foldCopy is foldSum that also copies, and prefetches memory ahead bytes further on.
//
//go:noescape
func foldCopy(dst, src *byte, lines, ahead int, k *factors, crc uint32, sum uint64) (uint32, uint64)

func sumLines(src *byte, lines int, crc uint32, sum uint64) (uint32, uint64) {
	return foldSum(src, lines, &folds, crc, sum)
}

func copyLines(dst, src *byte, lines, ahead int, crc uint32, sum uint64) (uint32, uint64) {
	return foldCopy(dst, src, lines, ahead, &folds, crc, sum)
}

// foldMarked is markedLanes for any number of blocks from 1.
//
//go:noescape
func foldMarked(dst, src *byte, blocks, ahead int, mark uint32, k *factors, crc uint32,
	sum uint64) (uint32, uint64)

func markLines(dst, src *byte, blocks, ahead int, mark, crc uint32, sum uint64) (uint32, uint64) {
	return foldMarked(dst, src, blocks, ahead, mark, &folds, crc, sum)
}
