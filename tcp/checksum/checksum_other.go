//go:build !amd64 && !arm64

package checksum

const fast = false

func sumFast(b []byte, crc uint32, sum uint64) (uint32, uint64) { return sumPlain(b, crc, sum) }

func crcFast(crc uint32, b []byte) uint32 {
	crc, _ = sumPlain(b, crc, 0)
	return crc
}

func copyFast(dst, src []byte, crc uint32, sum uint64, _ int) (uint32, uint64) {
	copy(dst, src)
	return sumPlain(dst, crc, sum)
}

func prefetch([]byte) {}

const maxBlocks = 0

func markedFast(_, _ []byte, _ int, _, crc uint32, sum uint64, _ int) (uint32, uint64) {
	return crc, sum
}
