package mpa

import (
	"xwarp/mpa/octets"
	"xwarp/mpa/ulp"
)

// Direct is implemented by a Source whose ULPDUs mostly are a header and then octets that lie together in memory. The header is
// made once for each FPDU then, the octets are copied, checked and summed in one pass where no marker is between them, and those
// that are likely to be sent next are fetched into the cache.
type Direct interface {
	// HeadULPDU writes the first h octets of the ULPDU ref, which has n, to head, and returns the memory where the other n-h
	// are; head has at least n octets of room, and h is even. What body has behind them is likely to be sent next. When ok is
	// false, ReadULPDU has to be asked, and what head holds has no meaning.
	HeadULPDU(ref ulp.Ref, n int, head []byte) (h int, body []byte, ok bool)
}

// nearAhead is how many octets ahead memory is fetched into the cache when nothing is known to be sent after an FPDU.
const nearAhead = 256

// put writes the FPDU of d to dst, which has exactly its size. With a CRC it returns the sum of all octets, too.
func (s *Sender) put(dst []byte, d *descriptor) (sum uint64) {
	off := uint32(d.at - s.start)
	if s.direct != nil {
		if sum, ok := s.cfg.putDirect(dst, off, s.direct, d.ref, int(d.n)); ok {
			return sum
		}
	}
	return s.cfg.put(dst, off, s.src, d.ref, int(d.n))
}

// putDirect is Framing.put for a ULPDU that from knows.
func (f Framing) putDirect(dst []byte, off uint32, from Direct, ref ulp.Ref, n int) (sum uint64, ok bool) {
	w, next := f.open(dst, off, n)
	length := w - lengthLen
	h, body, ok := from.HeadULPDU(ref, n, dst[w:])
	if !ok || h%2 != 0 {
		return 0, false
	}
	if w += h; w >= next {
		copy(dst[next+MarkerLen:], dst[next:w])
		putMarker(dst, next, length)
		w, next = w+MarkerLen, next+MarkerInterval
	}
	ahead := nearAhead
	if len(body) > n-h {
		ahead = n - h
	}
	if !f.Markers && f.CRC {
		crc, sum := octets.Sum(dst[:w], 0, 0)
		crc, sum = octets.CopySum(dst[w:], body[:n-h], crc, sum, ahead)
		return f.close(dst, w+n-h, next, length, w+n-h, crc, sum), true
	}
	crc, done := uint32(0), 0 // done is how many octets of dst crc and sum are of
	for read := 0; read < n-h; {
		k := min(n-h-read, next-w, MarkerInterval)
		octets.Fetch(body[min(read+ahead, len(body)):min(read+ahead+k, len(body))])
		copy(dst[w:], body[read:read+k])
		read, w = read+k, w+k
		if w == next && f.CRC && n-h-read >= octets.MinMarked && read >= MarkerLen { // from marker to marker, as fast as without
			crc, sum = octets.Sum(dst[done:w], crc, sum)
			k, crc, sum = octets.CopyMarked(dst[w:], body[:n-h], read, uint32(w-length), crc, sum, ahead)
			read += k / MarkerInterval * (MarkerInterval - MarkerLen)
			w, next, done = w+k, next+k, w+k
		}
		if w == next {
			w, next = putMarker(dst, w, length), next+MarkerInterval
		}
	}
	return f.close(dst, w, next, length, done, crc, sum), true
}
