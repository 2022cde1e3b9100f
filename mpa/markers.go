package mpa

import (
	"encoding/binary"

	"xwarp/mpa/ulpdu"
)

// lengthFieldAt returns the offset of the ULPDU_Length field of the FPDU that begins at start. It follows the marker,
// if the FPDU begins with one.
func (r *Receiver) lengthFieldAt(start int64) int64 {
	if r.cfg.Markers && start%MarkerInterval == 0 {
		return start + MarkerLen
	}
	return start
}

// areMarkersRight checks the markers of the FPDU, which is [start, end) and has its length field at length.
func (r *Receiver) areMarkersRight(fpdu [][]byte, start, length, end int64) bool {
	if len(fpdu) == 1 && arePlainMarkers(fpdu[0], int(start%MarkerInterval)) {
		return true
	}
	if start != length && r.u16(start+2)&^3 != 0 {
		return false
	}
	for m := (length | (MarkerInterval - 1)) + 1; m < end; m += MarkerInterval {
		if r.fpduStart(m, int64(r.u16(m+2))) != start {
			return false
		}
	}
	return true
}

// arePlainMarkers reports whether all markers of the FPDU b, which begins off bytes behind the place of a marker, are
// exactly as in RFC 5044.
func arePlainMarkers(b []byte, off int) bool {
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

// fpduStart returns where the FPDU of the marker at m with FPDU pointer ptr begins, including a marker in front of it.
// It returns -1 if the pointer cannot be right.
func (r *Receiver) fpduStart(m, ptr int64) int64 {
	ptr &^= 3
	length := m - ptr
	switch {
	case ptr == 0:
		return m // the marker is in front of the FPDU
	case length%MarkerInterval == MarkerLen:
		return length - MarkerLen
	case length%MarkerInterval != 0:
		return length
	case r.cfg.AnyMarkerOrigin:
		return length // ptr counts from the marker in front
	}
	return -1 // no length field is at the place of a marker
}

// findStart searches the bytes of p and the segment, up to end, for a marker whose FPDU begins in p. That FPDU
// becomes the start of the chain. It reports whether it found one.
func (r *Receiver) findStart(p *part, end int64) bool {
	if !r.cfg.Markers || r.cfg.AnyMarkerOrigin && !r.cfg.CRC {
		return false
	}
	for ; p.nextMarker+MarkerLen <= end; p.nextMarker += MarkerInterval {
		if at := r.fpduStart(p.nextMarker, int64(r.u16(p.nextMarker+2))); at >= p.start {
			p.chainStart, p.chainEnd = at, at
			return true
		}
		if p.nextMarker-p.start > maxScan*MarkerInterval {
			p.walkStopped = true // no FPDU is that large
			return false
		}
	}
	return false
}

// firstMarker returns the stream offset of the first marker that is not before stream offset at.
func firstMarker(at int64) int64 { return (at + MarkerInterval - 1) &^ (MarkerInterval - 1) }

// markerError is the error for markers that disagree with the length chain.
func markerError(start int64) *ulpdu.Error {
	return ulpdu.Newf(ulpdu.MPA, 0, ulpdu.CodeMarker,
		"FPDU at stream offset %d: the markers and the length chain disagree", start)
}
