//go:build amd64 || arm64

package checksum

// markedLanes is copyLanes for three lanes of blocks of 512 bytes, each of them a marker and 508 bytes of
// src; src is four bytes in front of the first. mark is the value of the first marker, in host order; each
// is 512 more than the one before.
//
//go:noescape
func markedLanes(dst, src *byte, blocks, ahead int, mark uint32, shift *uint64, crc uint32,
	sum uint64) (uint32, uint64)

// maxBlocks is the most blocks of one lane.
const maxBlocks = maxWords * 8 / blockLen

// markedFast is CopyMarked for three times blocks.
func markedFast(dst, src []byte, blocks int, mark, crc uint32, sum uint64, ahead int) (uint32,
	uint64) {
	if wide {
		crc, sum = markLines(&dst[0], &src[0], 3*blocks, ahead, mark, ^crc, sum)
		return ^crc, sum
	}
	crc, sum = markedLanes(&dst[0], &src[0], blocks, ahead, mark, &shift[0], ^crc, sum)
	return ^crc, sum
}
