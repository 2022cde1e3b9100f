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
	if f.Markers || !f.CRC {
		return f.spread(dst, w, next, length, body, n-h), true
	}
	ahead := nearAhead
	if len(body) > n-h {
		ahead = n - h
	}
	crc, sum := octets.Sum(dst[:w], 0, 0)
	crc, sum = octets.CopySum(dst[w:], body[:n-h], crc, sum, ahead)
	return f.close(dst, w+n-h, next, length, w+n-h, crc, sum), true
}

// spread writes the first n octets of body to dst[w:], with markers from next on, and what follows them.
func (f Framing) spread(dst []byte, w, next, length int, body []byte, n int) uint64 {
	crc, sum, done := uint32(0), uint64(0), 0 // done is how many octets of dst crc and sum are of
	soon := n                                 // what body has from here on is fetched when there is time
	for read := 0; read < n; {
		k := copy(dst[w:min(next, len(dst))], body[read:n])
		read, w = read+k, w+k
		if w < next {
			break
		}
		if f.CRC && n-read >= octets.MinMarked && read >= MarkerLen { // from marker to marker, as fast as without
			octets.Fetch(clip(body, soon, n+read))
			crc, sum = octets.Sum(dst[done:w], crc, sum)
			k, crc, sum = octets.CopyMarked(dst[w:], body[:n], read, uint32(w-length), crc, sum, n)
			read += k / MarkerInterval * (MarkerInterval - MarkerLen)
			w, next, done, soon = w+k, next+k, w+k, n+read
		}
		w, next = putMarker(dst, w, length), next+MarkerInterval
	}
	sum = f.close(dst, w, next, length, done, crc, sum)
	octets.Fetch(clip(body, soon, 2*n))
	return sum
}

// clip is b[from:to] as far as b has that.
func clip(b []byte, from, to int) []byte { return b[min(from, len(b)):min(to, len(b))] }
