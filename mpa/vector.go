package mpa

import (
	"bytes"
	"encoding/binary"

	"xwarp/mpa/ulpdu"
	"xwarp/tcp/checksum"
	"xwarp/tcp/seq"
)

// Vector holds bytes of a stream in pieces, for a transport that writes pieces (writev) and retransmits by itself.
// Bytes that no Source lends are in Room. The zero value with a Room is empty.
type Vector struct {
	Room []byte // owned by the caller, who may remove it while the Vector is empty

	array      [][]byte // the array of pieces, from its beginning
	pieces     [][]byte // not discarded yet, in stream order
	total      int      // in pieces
	used       int      // of Room
	lastInRoom bool     // the last piece ends at Room[used]
}

// Len returns the bytes that v holds.
func (v *Vector) Len() int { return v.total }

// Space returns how many bytes Extend can give.
func (v *Vector) Space() int { return len(v.Room) - v.used }

// Pieces returns the bytes piece by piece. The caller must not change them.
func (v *Vector) Pieces() [][]byte { return v.pieces }

// Extend appends n bytes of Room, at most Space, and returns them for the caller to write.
func (v *Vector) Extend(n int) []byte {
	from := v.used
	v.used += n
	if v.total += n; v.lastInRoom {
		last := &v.pieces[len(v.pieces)-1]
		*last = (*last)[:len(*last)+n]
	} else {
		v.appendPiece(v.Room[from:v.used])
		v.lastInRoom = true
	}
	return v.Room[from:v.used:v.used]
}

// appendLent appends b without copying it.
func (v *Vector) appendLent(b []byte) {
	v.total += len(b)
	v.appendPiece(b)
	v.lastInRoom = false
}

func (v *Vector) appendPiece(b []byte) {
	if len(v.pieces) == cap(v.pieces) && cap(v.pieces) < cap(v.array) { // Discard left room in front
		v.pieces = append(v.array[:0], v.pieces...)
	}
	if v.pieces = append(v.pieces, b); cap(v.pieces) > cap(v.array) {
		v.array = v.pieces[:0]
	}
}

// Discard removes the first n bytes.
func (v *Vector) Discard(n int) {
	if v.total -= n; v.total == 0 {
		v.Reset()
		return
	}
	for n >= len(v.pieces[0]) {
		n -= len(v.pieces[0])
		v.pieces[0] = nil
		v.pieces = v.pieces[1:]
	}
	v.pieces[0] = v.pieces[0][n:]
}

// CopyLent replaces each piece by a copy, so that v refers to no memory of its Source.
func (v *Vector) CopyLent() {
	for i, p := range v.pieces {
		v.pieces[i] = bytes.Clone(p)
	}
	v.lastInRoom = false
}

// Reset empties v.
func (v *Vector) Reset() {
	clear(v.pieces)
	v.pieces, v.total, v.used, v.lastInRoom = v.array[:0], 0, 0, false
}

// Snapshot is a state of a Vector, for Restore.
type Snapshot struct {
	pieces, total, used int
	lastInRoom          bool
	last                []byte
}

// Snapshot returns the state of v.
func (v *Vector) Snapshot() Snapshot {
	m := Snapshot{pieces: len(v.pieces), total: v.total, used: v.used, lastInRoom: v.lastInRoom}
	if m.pieces > 0 {
		m.last = v.pieces[m.pieces-1]
	}
	return m
}

// Restore removes the bytes appended since m. Nothing may have been discarded in between.
func (v *Vector) Restore(m Snapshot) {
	clear(v.pieces[m.pieces:])
	v.pieces, v.total, v.used, v.lastInRoom = v.pieces[:m.pieces], m.total, m.used, m.lastInRoom
	if m.pieces > 0 {
		v.pieces[m.pieces-1] = m.last
	}
}

// minLent is the smallest payload of an FPDU, in bytes, that is lent and not copied. For fewer bytes, another piece
// costs the kernel more than the pass that copies and checks costs here.
const minLent = 8 << 10

// Gather appends the FPDUs of r to v, which must have Space for them. They are FPDUs that Next froze and Acked has not
// released. It returns false if r does not consist of whole ones; v may then hold some of them.
func (s *Sender) Gather(r seq.Range, v *Vector) bool {
	i, ok := s.descriptorAt(r.Start)
	for at := r.Start; at.Less(r.End); i++ {
		if !ok || i == s.tail || s.descriptor(i).at != at || r.End.Less(s.endOf(i)) {
			return false
		}
		d, end := s.descriptor(i), s.endOf(i)
		if int(d.n) < minLent || !s.cfg.lendFPDU(v, s.source, d.ref, int(d.n)) {
			s.putFPDU(v.Extend(end.Diff(at)), d)
		}
		at, s.lastFilled = end, i
	}
	return true
}

// lendFPDU appends the FPDU of the ULPDU ref of n bytes, whose body stays in the memory of src. It returns false, and
// appends nothing, with markers, or if src does not lend the body.
func (f Framing) lendFPDU(v *Vector, src Source, ref ulpdu.Ref, n int) bool {
	if f.Markers {
		return false
	}
	b := v.Room[v.used:]
	head, body := src.LendULPDU(ref, b[lengthLen:lengthLen+n])
	if body == nil {
		return false
	}
	binary.BigEndian.PutUint16(b, uint16(n))
	body = body[:n-head]
	front := v.Extend(lengthLen + head)
	pad := -(lengthLen + n) & 3
	crc := uint32(0)
	if f.CRC {
		crc = checksum.CRC(checksum.CRC(0, front), body)
	}
	v.appendLent(body)
	tail := v.Extend(pad + crcLen)
	clear(tail[:pad])
	if f.CRC {
		crc = checksum.CRC(crc, tail[:pad])
	}
	binary.LittleEndian.PutUint32(tail[pad:], crc)
	return true
}
