package mpa

import (
	"encoding/binary"

	"xwarp/mpa/ulpdu"
	"xwarp/tcp/checksum"
)

// segment is the octets of one offer, at their place in the stream.
type segment struct {
	pieces [][]byte
	p, q   int64 // octets [p,q)
	kept   int64 // octets [p,kept) are placed or held
	i      int   // pieces[i] begins at stream offset at
	at     int64
}

func (s *segment) set(pieces [][]byte, p int64, n int) {
	sum := 0
	for _, b := range pieces {
		sum += len(b)
	}
	*s = segment{pieces: pieces, p: p, q: p + int64(max(0, min(n, sum))), kept: p, at: p}
}

// none makes the segment empty: all octets come from those held.
func (s *segment) none(at int64) { *s = segment{p: at, q: at, kept: at, at: at} }

// skip leaves out the octets before to, as kept.
func (s *segment) skip(to int64) {
	s.p = min(to, s.q)
	s.kept = s.p
}

// from returns the octets from off, which lies in the segment, to the end of their piece.
func (s *segment) from(off int64) []byte {
	if off < s.at {
		s.i, s.at = 0, s.at-s.sum(s.i)
	}
	for off-s.at >= int64(len(s.pieces[s.i])) {
		s.at += int64(len(s.pieces[s.i]))
		s.i++
	}
	return s.pieces[s.i][off-s.at:]
}

// sum returns the octets in the pieces before i.
func (s *segment) sum(i int) (n int64) {
	for _, b := range s.pieces[:i] {
		n += int64(len(b))
	}
	return n
}

// chunk returns the octets from off on, at most to end, that lie together in the segment or in a block; none means that
// the octet at off is not there.
func (r *Receiver) chunk(off, end int64) []byte {
	var b []byte
	switch s := &r.seg; {
	case off < s.p:
		b, end = r.reassembly.at(off), min(end, s.p)
	case off < s.q:
		b, end = s.from(off), min(end, s.q)
	default:
		b = r.reassembly.at(off)
	}
	if int64(len(b)) > end-off {
		b = b[:end-off]
	}
	return b
}

// u16 returns the two octets at off, which are there.
func (r *Receiver) u16(off int64) int {
	b := r.chunk(off, off+2)
	if len(b) == 2 {
		return int(binary.BigEndian.Uint16(b))
	}
	c := r.chunk(off+1, off+2)
	if len(b) == 0 || len(c) == 0 {
		return 0
	}
	return int(b[0])<<8 | int(c[0])
}

// gather collects the octets [from, to) in the pool's list of pieces; none when some are not there.
func (r *Receiver) gather(from, to int64) [][]byte {
	x := r.cfg.Pool.pieces[:0]
	for from < to {
		b := r.chunk(from, to)
		if len(b) == 0 {
			return nil
		}
		x = append(x, b)
		from += int64(len(b))
	}
	r.cfg.Pool.pieces = x
	return x
}

// crcRight checks the CRC of the FPDU x: it ends with it.
func crcRight(x [][]byte) bool {
	crc := uint32(0)
	for _, b := range x {
		crc = checksum.CRC(crc, b)
	}
	return crc == crcResidue
}

// viewOf returns the ULPDU of n octets in the FPDU x that begins at start and whose length field is at length.
func (r *Receiver) viewOf(x [][]byte, start, length int64, n int) *ulpdu.View {
	v := &r.cfg.Pool.view
	v.Reset()
	skip, run := int(length-start)+lengthLen, n // octets to leave out, octets to the next marker
	if r.cfg.Markers {
		run = MarkerInterval - int((length+lengthLen)%MarkerInterval)
	}
	for _, b := range x {
		for skip < len(b) {
			b = b[skip:]
			k := min(run, n, len(b))
			v.Append(b[:k])
			if n -= k; n == 0 {
				return v
			}
			b, skip = b[k:], 0
			if run -= k; run > 0 {
				break
			}
			skip, run = MarkerLen, MarkerInterval-MarkerLen
		}
		skip -= min(skip, len(b))
	}
	return v
}

// lengthAt returns where the ULPDU_Length field of the FPDU is that begins at start: behind a marker in front.
func (r *Receiver) lengthAt(start int64) int64 {
	if r.cfg.Markers && start%MarkerInterval == 0 {
		return start + MarkerLen
	}
	return start
}

// markersRight checks the markers of the FPDU x, which is [start, end), against the place of its length field.
func (r *Receiver) markersRight(x [][]byte, start, length, end int64) bool {
	if len(x) == 1 && plainMarkers(x[0], int(start%MarkerInterval)) {
		return true
	}
	if start != length && r.u16(start+2)&^3 != 0 {
		return false
	}
	for m := (length | (MarkerInterval - 1)) + 1; m < end; m += MarkerInterval {
		if r.fpduOf(m, int64(r.u16(m+2))) != start {
			return false
		}
	}
	return true
}

// plainMarkers reports whether all markers of the FPDU b, which begins off octets behind a marker's place,
// are as RFC 5044 has them.
func plainMarkers(b []byte, off int) bool {
	length := 0
	if off == 0 {
		if binary.BigEndian.Uint16(b[2:]) != 0 {
			return false
		}
		length = MarkerLen
	}
	for m := MarkerInterval - off; m+MarkerLen <= len(b); m += MarkerInterval {
		if int(binary.BigEndian.Uint16(b[m+2:])) != m-length {
			return false
		}
	}
	return true
}

// fpduOf returns where the FPDU begins that the marker at m, with FPDU pointer ptr, belongs to, its marker in
// front included; -1 when the pointer cannot be right.
func (r *Receiver) fpduOf(m, ptr int64) int64 {
	ptr &^= 3
	length := m - ptr
	switch {
	case ptr == 0:
		return m // the marker stands in front
	case length%MarkerInterval == MarkerLen:
		return length - MarkerLen
	case length%MarkerInterval != 0:
		return length
	case r.cfg.AnyMarkerOrigin:
		return length // it counts from the marker in front
	}
	return -1 // no length field stands where a marker does
}
