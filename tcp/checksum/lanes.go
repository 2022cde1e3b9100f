//go:build amd64 || arm64

package checksum

import "unsafe"

// sumLanes is Sum for n bytes. Argument and result crc is the CRC register, the complement of a CRC. The first
// 3*8*words bytes are processed in three lanes of that many words. The factors shift[words] and shift[2*words] join
// their CRCs.
//
//go:noescape
func sumLanes(src *byte, n, words int, shift *uint64, crc uint32, sum uint64) (uint32, uint64)

// crcLanes is sumLanes without the sum.
//
//go:noescape
func crcLanes(src *byte, n, words int, shift *uint64, crc uint32) uint32

// copyLanes is sumLanes that also copies the bytes from src to dst. On amd64 it prefetches, for each line of 64 bytes,
// the line of src that is ahead bytes further on. On arm64 it does not prefetch, because the benefit is not measured.
//
//go:noescape
func copyLanes(dst, src *byte, n, words, ahead int, shift *uint64, crc uint32, sum uint64) (uint32,
	uint64)

// prefetchLines prefetches the cache lines of the n bytes at p; n is at least one.
//
//go:noescape
func prefetchLines(p *byte, n int)

const (
	maxWords     = 512 // of one lane
	maxLaneBytes = 3 * 8 * maxWords
	minLanes     = 96 // bytes from which lanes are worthwhile

	lineLen  = 64
	minLines = 4 // minimum number of lines for folding, also to be worthwhile
)

// shift[i] moves a CRC register over i words of zeros. It is x^(64*i-33) modulo the polynomial; bit 31 is x^0. The
// missing 33 powers come from its use: the carry-less product of two 32-bit values in this bit order, read as a 64-bit
// word, has one power of x too many, and the CRC32 instruction multiplies the word by x^32.
var shift = makeShift()

func makeShift() (t [2*maxWords + 1]uint64) {
	if !fast {
		return t
	}
	v := uint32(1) // x^31
	for i := 1; i < len(t); i++ {
		t[i] = uint64(v)
		v = crcLanes(&zeros[0], len(zeros), 0, &t[0], v)
	}
	return t
}

var zeros [8]byte

// laneWords returns the number of words in each lane for n bytes, 0 if lanes are not worthwhile.
func laneWords(n int) int {
	if n < minLanes {
		return 0
	}
	return n / 24 / laneStep * laneStep
}

func sumFast(b []byte, crc uint32, sum uint64) (uint32, uint64) {
	crc = ^crc
	if lines := len(b) / lineLen; wide && lines >= minLines {
		crc, sum = sumLines(&b[0], lines, crc, sum)
		b = b[lines*lineLen:]
	}
	for len(b) > maxLaneBytes {
		crc, sum = sumLanes(&b[0], maxLaneBytes, maxWords, &shift[0], crc, sum)
		b = b[maxLaneBytes:]
	}
	if len(b) > 0 {
		crc, sum = sumLanes(&b[0], len(b), laneWords(len(b)), &shift[0], crc, sum)
	}
	return ^crc, sum
}

func crcFast(crc uint32, b []byte) uint32 {
	crc = ^crc
	if lines := len(b) / lineLen; wide && lines >= minLines {
		crc, _ = sumLines(&b[0], lines, crc, 0)
		b = b[lines*lineLen:]
	}
	for len(b) > maxLaneBytes {
		crc = crcLanes(&b[0], maxLaneBytes, maxWords, &shift[0], crc)
		b = b[maxLaneBytes:]
	}
	if len(b) > 0 {
		crc = crcLanes(&b[0], len(b), laneWords(len(b)), &shift[0], crc)
	}
	return ^crc
}

// copyFast is CopySum on a processor that is fast; dst is as long as src.
func copyFast(dst, src []byte, crc uint32, sum uint64, ahead int) (uint32, uint64) {
	crc = ^crc
	if lines := len(src) / lineLen; wide && lines >= minLines {
		crc, sum = copyLines(&dst[0], &src[0], lines, ahead, crc, sum)
		dst, src = dst[lines*lineLen:], src[lines*lineLen:]
	}
	for len(src) > maxLaneBytes {
		crc, sum = copyLanes(&dst[0], &src[0], maxLaneBytes, maxWords, ahead, &shift[0], crc, sum)
		dst, src = dst[maxLaneBytes:], src[maxLaneBytes:]
	}
	if len(src) > 0 {
		crc, sum = copyLanes(&dst[0], &src[0], len(src), laneWords(len(src)), ahead, &shift[0], crc,
			sum)
	}
	return ^crc, sum
}

func prefetch(b []byte) { prefetchLines(unsafe.SliceData(b), len(b)) }

// markedLanes is copyLanes for three lanes with a number of blocks each. A block in dst is 512 bytes: a marker and 508
// bytes of src. src points four bytes in front of the bytes of the first block. mark is the value of the first marker,
// in host order; each further marker is 512 more.
//
//go:noescape
func markedLanes(dst, src *byte, blocks, ahead int, mark uint32, shift *uint64, crc uint32,
	sum uint64) (uint32, uint64)

// maxBlocks is the maximum number of blocks in one lane.
const maxBlocks = maxWords * 8 / blockLen

// markedFast is CopyMarked for 3*blocks blocks. src begins four bytes in front of the bytes of the first block.
func markedFast(dst, src []byte, blocks int, mark, crc uint32, sum uint64, ahead int) (uint32,
	uint64) {
	if wide {
		crc, sum = markLines(&dst[0], &src[0], 3*blocks, ahead, mark, ^crc, sum)
		return ^crc, sum
	}
	crc, sum = markedLanes(&dst[0], &src[0], blocks, ahead, mark, &shift[0], ^crc, sum)
	return ^crc, sum
}
