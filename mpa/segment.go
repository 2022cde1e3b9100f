package mpa

import (
	"encoding/binary"

	"xwarp/mpa/ulpdu"
	"xwarp/tcp/checksum"
)

// segment is the bytes of one offer, at their place in the stream.
type segment struct {
	pieces     [][]byte
	start, end int64 // the bytes [start, end)
	kept       int64 // the bytes [start, kept) are placed or held
	piece      int   // pieces[piece] begins at stream offset pieceAt
	pieceAt    int64
}

// set makes s the first n bytes of pieces, which begin at stream offset start.
func (s *segment) set(pieces [][]byte, start int64, n int) {
	sum := 0
	for _, b := range pieces {
		sum += len(b)
	}
	*s = segment{pieces: pieces, start: start, end: start + int64(max(0, min(n, sum))), kept: start,
		pieceAt: start}
}

// clear makes s empty at stream offset at: chunk then reads held bytes only.
func (s *segment) clear(at int64) { *s = segment{start: at, end: at, kept: at, pieceAt: at} }

func (s *segment) empty() bool { return s.start >= s.end }

// skipTo skips the bytes before stream offset to, which count as kept.
func (s *segment) skipTo(to int64) {
	s.start = min(to, s.end)
	s.kept = s.start
}

// from returns the bytes from off, which lies in the segment, to the end of their piece.
func (s *segment) from(off int64) []byte {
	if off < s.pieceAt {
		s.piece, s.pieceAt = 0, s.pieceAt-s.lenBefore(s.piece)
	}
	for off-s.pieceAt >= int64(len(s.pieces[s.piece])) {
		s.pieceAt += int64(len(s.pieces[s.piece]))
		s.piece++
	}
	return s.pieces[s.piece][off-s.pieceAt:]
}

// lenBefore returns the number of bytes in the pieces before i.
func (s *segment) lenBefore(i int) (n int64) {
	for _, b := range s.pieces[:i] {
		n += int64(len(b))
	}
	return n
}

// chunk returns the bytes from off on, at most to end, that lie together in the segment or in a block of held bytes.
// The bytes up to end must have been received. It returns none if the byte at off is in no block, which is a fault of
// this package.
func (r *Receiver) chunk(off, end int64) []byte {
	var b []byte
	switch s := &r.seg; {
	case off < s.start:
		b, end = r.reassembly.at(off), min(end, s.start)
	case off < s.end:
		b, end = s.from(off), min(end, s.end)
	default:
		b = r.reassembly.at(off)
	}
	if int64(len(b)) > end-off {
		b = b[:end-off]
	}
	return b
}

// u16 returns the two bytes at off, which must have been received, as a number.
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

// gather collects the bytes [from, to) in the pool's list of pieces. It returns nil if some are in no block.
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

// isCRCRight checks the CRC at the end of the FPDU. crc is the CRC32C of all bytes of the FPDU, if it is known.
func isCRCRight(fpdu [][]byte, crc checksum.Known) bool {
	if !crc.Valid {
		for _, b := range fpdu {
			crc.CRC = checksum.CRC(crc.CRC, b)
		}
	}
	return crc.CRC == crcResidue
}

// viewOf returns the ULPDU of n bytes in the FPDU that begins at start and has its length field at length. The view is
// the pool's.
func (r *Receiver) viewOf(fpdu [][]byte, start, length int64, n int) *ulpdu.View {
	v := &r.cfg.Pool.view
	v.Reset()
	skip, run := int(length-start)+lengthLen, n // bytes to leave out, bytes up to the next marker
	if r.cfg.Markers {
		run = MarkerInterval - int((length+lengthLen)%MarkerInterval)
	}
	for _, b := range fpdu {
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
