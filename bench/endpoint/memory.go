package endpoint

import (
	"hash/crc32"
	"time"

	"xwarp/tcp/wire"
)

// MeasureMemory does what no receiver can avoid with the same bytes: an Internet checksum over a segment of
// n bytes, its CRC32C, and its copy to where it belongs. The segments lie in spread bytes of memory; a
// transfer's lie in the UMEM.
func MeasureMemory(n int, d time.Duration, spread int) *Result {
	stride := (n + 63) &^ 63
	count := max(1, spread/stride)
	src, dst := make([]byte, count*stride), make([]byte, count*stride)
	for i := range src {
		src[i], dst[i] = byte(i), 1
	}
	table := crc32.MakeTable(crc32.Castagnoli)
	var done uint64
	var sink uint64
	from := time.Now()
	for time.Since(from) < d {
		for i := range count {
			s := src[i*stride:][:n]
			sink += wire.Sum(s, 0)
			sink += uint64(crc32.Checksum(s, table))
			copy(dst[i*stride:], s)
		}
		done += uint64(count)
	}
	took := time.Since(from)
	return &Result{Sum: sink, Messages: done, Octets: done * uint64(n), Frames: done,
		FrameOctets: done * uint64(n), Seconds: took.Seconds()}
}
