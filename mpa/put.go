package mpa

import (
	"xwarp/mpa/ulpdu"
	"xwarp/tcp/checksum"
)

// nearAhead is the number of bytes that are fetched into the cache ahead while the next FPDU's length is unknown.
const nearAhead = 256

// putFPDU writes the FPDU of the ULPDU ref of n bytes to dst, which has exactly its size. off is where it begins in the
// stream. Without markers, bytes that src has in memory are copied and added to CRC and sum in one pass. With a CRC
// putFPDU returns the sum of all bytes; see FillSum.
func (f Framing) putFPDU(dst []byte, off uint32, src Source, ref ulpdu.Ref, n int) (sum uint64) {
	w, next := f.putHead(dst, off, n)
	length := w - lengthLen
	head, body := src.ReadULPDU(ref, dst[w:w+n])
	if w += head; w >= next {
		w, next = insertMarkers(dst, w, next, length)
	}
	n -= head
	if f.Markers || !f.CRC || n == 0 {
		return f.putBody(dst, w, next, length, body, n)
	}
	ahead := nearAhead
	if len(body) > n {
		ahead = n
	}
	crc, sum := checksum.Sum(dst[:w], 0, 0)
	crc, sum = checksum.CopySum(dst[w:], body[:n], crc, sum, ahead)
	return f.putTail(dst, w+n, next, length, w+n, crc, sum)
}

// insertMarkers moves the bytes of dst[:w] apart for markers, the first of which belongs at next, and writes the
// markers. It returns the index behind all of it, and the place of the marker after that.
func insertMarkers(dst []byte, w, next, length int) (int, int) {
	const between = MarkerInterval - MarkerLen
	k := (w-next)/between + 1
	for i := k - 1; i >= 0; i-- { // from behind: each byte moves once
		from, at := next+i*between, next+i*MarkerInterval
		copy(dst[at+MarkerLen:], dst[from:min(from+between, w)])
		putMarker(dst, at, length)
	}
	return w + k*MarkerLen, next + k*MarkerInterval
}

// putBody writes the first n bytes of body to dst[w:], with markers from next on, then pad and CRC. It returns the sum
// of all bytes.
func (f Framing) putBody(dst []byte, w, next, length int, body []byte, n int) uint64 {
	crc, sum, done := uint32(0), uint64(0), 0 // crc and sum cover dst[:done]
	soon := n                                 // body[soon:] has not been prefetched into the cache
	for read := 0; read < n; {
		k := copy(dst[w:min(next, len(dst))], body[read:n])
		read, w = read+k, w+k
		if w < next {
			break
		}
		if f.CRC && n-read >= checksum.MinMarked && read >= MarkerLen { // as fast as without markers
			checksum.Prefetch(clampSlice(body, soon, n+read))
			crc, sum = checksum.Sum(dst[done:w], crc, sum)
			k, crc, sum = checksum.CopyMarked(dst[w:], body[:n], read, uint32(w-length), crc, sum,
				n)
			read += k / MarkerInterval * (MarkerInterval - MarkerLen)
			w, next, done, soon = w+k, next+k, w+k, n+read
		}
		w, next = putMarker(dst, w, length), next+MarkerInterval
	}
	sum = f.putTail(dst, w, next, length, done, crc, sum)
	checksum.Prefetch(clampSlice(body, soon, 2*n))
	return sum
}

// clampSlice returns b[from:to], limited to the length of b.
func clampSlice(b []byte, from, to int) []byte { return b[min(from, len(b)):min(to, len(b))] }
