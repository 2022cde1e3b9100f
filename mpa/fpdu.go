// Package mpa implements Marker PDU Aligned framing for TCP (RFC 5044): FPDUs with CRC and markers. A Sender keeps
// FPDUs aligned with TCP segments. A Receiver finds, checks and places FPDUs from segments of any order and shape.
// Package mpa/startup negotiates the Framing of both directions first.
//
// Nothing here has a goroutine, a lock, a clock or I/O.
//
//	ULPDU of DDP      |len|      ULPDU      |pad|CRC|      one FPDU, RFC 5044 4.1
//	in the stream     |len| ULPDU |M| ULPDU |pad|CRC|      a marker M at each multiple of 512 bytes from the start
//
// The files are ordered by subject: receiver.go is the receiver's API, fastpath.go handles a segment that is exactly
// the next FPDU, islands.go the parts of the stream in order and behind holes, verdict.go the walk along their FPDUs,
// markers.go the markers, hold.go the bytes and records kept. sender.go is the sender, fpdu.go and put.go write FPDUs,
// and vector.go collects them for writev.
package mpa

import (
	"encoding/binary"

	"xwarp/tcp/checksum"
)

// An FPDU (RFC 5044, 4.1). Its words of four bytes, counted from the ULPDU_Length field, begin at multiples of four
// bytes from the start of the stream. So a marker never cuts a word.
//
//	 0                   1                   2                   3
//	+-------------------------------+-------------------------------+
//	|        ULPDU_Length (2)       |                               |
//	+-------------------------------+        ULPDU ...              |
//	|                               +-------------------------------+
//	|                               |        PAD (0..3, zero)       |
//	+-------------------------------+-------------------------------+
//	|        CRC32C (4), least significant byte first              |
//	+---------------------------------------------------------------+
//
// A marker (4.2) is two reserved bytes and the FPDU pointer: the bytes from the ULPDU_Length field of the
// FPDU that holds it to the marker, 0 if the marker is in front of that field.

// crcResidue is the CRC32C of bytes that end with their own CRC32C, least significant byte first.
const crcResidue = 0x48674bc7

// Framing is the form of the FPDUs of one direction.
type Framing struct {
	Markers bool // a marker every 512 bytes
	CRC     bool // the CRC is computed and checked; its field always exists
}

// dynamicMULPDU returns the length of the largest ULPDU whose FPDU fits room bytes if it begins off bytes after the
// start of the stream: the dynamic MULPDU of RFC 5044, 4.5. It counts the markers that fall into these bytes, not the
// most that can. It does not apply the lower bound MinMULPDU. An FPDU of this size fills its segment, unless the
// segment would end with a marker.
func (f Framing) dynamicMULPDU(off uint32, room int) int {
	n := room&^3 - (lengthLen + crcLen)
	if f.Markers {
		before := (MarkerInterval - int(off%MarkerInterval)) % MarkerInterval // bytes in front of the first marker
		n -= MarkerLen * max(0, (room&^3-before+MarkerInterval-1)/MarkerInterval)
	}
	return min(n, MaxULPDU)
}

// Size returns the size of an FPDU whose ULPDU has n bytes and that begins off bytes after the start of the stream. It
// includes all markers, also one in front.
func (f Framing) Size(off uint64, n int) int {
	body := (lengthLen+n+3)&^3 + crcLen
	if !f.Markers {
		return body
	}
	at := int(off % MarkerInterval)
	if at == 0 {
		return body + MarkerLen*markersIn(body)
	}
	room := MarkerInterval - at // up to the next marker
	if body <= room {
		return body // a marker right behind the CRC belongs to the next FPDU
	}
	return body + MarkerLen*markersIn(body-room)
}

// markersIn returns the number of markers among body bytes that begin where a marker belongs. It counts that marker.
// body does not include the markers.
func markersIn(body int) int {
	const between = MarkerInterval - MarkerLen
	return (body + between - 1) / between
}

// putHead writes the marker and length field in front of a ULPDU of n bytes. off is the stream offset of dst. w is the
// index where the ULPDU begins, next the index of the next marker. next is len(dst) without markers, and may be beyond
// dst.
func (f Framing) putHead(dst []byte, off uint32, n int) (w, next int) {
	next = len(dst)
	if f.Markers {
		if next = MarkerInterval - int(off%MarkerInterval); next == MarkerInterval {
			binary.BigEndian.PutUint32(dst, 0)
			w = MarkerLen
		}
	}
	binary.BigEndian.PutUint16(dst[w:], uint16(n))
	return w + lengthLen, next
}

// putTail writes the pad from dst[w] on, a marker if one belongs in front of the CRC, and the CRC as the last bytes of
// dst. next is the index of the next marker, length that of the length field. crc and sum cover dst[:done]. It returns
// the sum of all bytes.
func (f Framing) putTail(dst []byte, w, next, length, done int, crc uint32, sum uint64) uint64 {
	if (w-length)&3 != 0 {
		for ; (w-length)&3 != 0; w++ {
			dst[w] = 0
		}
		if f.CRC {
			// first up to the end of the pad: bytes that are added to sum must begin at an even index
			crc, sum = checksum.Sum(dst[done:w], crc, sum)
			done = w
		}
	}
	if w == next {
		w = putMarker(dst, w, length)
	}
	if f.CRC && done < w {
		crc, sum = checksum.Sum(dst[done:w], crc, sum)
	}
	binary.LittleEndian.PutUint32(dst[w:], crc)
	return checksum.Add(sum, uint64(crc))
}

// putMarker writes a marker at w, whose FPDU pointer is the distance to the length field at index length, and returns
// the index behind it.
func putMarker(dst []byte, w, length int) int {
	binary.BigEndian.PutUint32(dst[w:], uint32(w-length))
	return w + MarkerLen
}
