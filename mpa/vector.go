package mpa

import (
	"bytes"
	"encoding/binary"

	"xwarp/mpa/ulpdu"
	"xwarp/tcp/checksum"
	"xwarp/tcp/seq"
)

// Vector holds octets of a stream in pieces, for a transport that takes them so (writev) and sends again by itself
// what is lost. What is not lent stands in Room. The zero value with a Room is empty.
type Vector struct {
	Room []byte // its owner's; the owner may take it away while the Vector is empty

	base   [][]byte // the array of pieces, from its beginning
	pieces [][]byte // what is left, in the order of the stream
	octets int      // in pieces
	used   int      // of Room
	open   bool     // the last piece ends at Room[used]
}

// Len returns the octets that v holds.
func (v *Vector) Len() int { return v.octets }

// Space returns how many octets Take can give.
func (v *Vector) Space() int { return len(v.Room) - v.used }

// Pieces returns the octets piece by piece; the caller must not change them.
func (v *Vector) Pieces() [][]byte { return v.pieces }

// Take appends n octets of Room, which the caller writes.
func (v *Vector) Take(n int) []byte {
	from := v.used
	v.used += n
	if v.octets += n; v.open {
		last := &v.pieces[len(v.pieces)-1]
		*last = (*last)[:len(*last)+n]
	} else {
		v.add(v.Room[from:v.used])
		v.open = true
	}
	return v.Room[from:v.used:v.used]
}

// lend appends b, which stays where it is.
func (v *Vector) lend(b []byte) {
	v.octets += len(b)
	v.add(b)
	v.open = false
}

func (v *Vector) add(b []byte) {
	if len(v.pieces) == cap(v.pieces) && cap(v.pieces) < cap(v.base) { // Drop left room in front
		v.pieces = append(v.base[:0], v.pieces...)
	}
	if v.pieces = append(v.pieces, b); cap(v.pieces) > cap(v.base) {
		v.base = v.pieces[:0]
	}
}

// Drop takes the first n octets away.
func (v *Vector) Drop(n int) {
	if v.octets -= n; v.octets == 0 {
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

// Own copies what is lent: v is as before, and holds nothing of its Source.
func (v *Vector) Own() {
	for i, p := range v.pieces {
		v.pieces[i] = bytes.Clone(p)
	}
	v.open = false
}

// Reset empties v.
func (v *Vector) Reset() {
	clear(v.pieces)
	v.pieces, v.octets, v.used, v.open = v.base[:0], 0, 0, false
}

// Mark is a state of a Vector, for Back.
type Mark struct {
	pieces, octets, used int
	open                 bool
	last                 []byte
}

// Mark returns the state of v.
func (v *Vector) Mark() Mark {
	m := Mark{pieces: len(v.pieces), octets: v.octets, used: v.used, open: v.open}
	if m.pieces > 0 {
		m.last = v.pieces[m.pieces-1]
	}
	return m
}

// Back takes away what was appended since m; nothing was dropped in between.
func (v *Vector) Back(m Mark) {
	clear(v.pieces[m.pieces:])
	v.pieces, v.octets, v.used, v.open = v.pieces[:m.pieces], m.octets, m.used, m.open
	if m.pieces > 0 {
		v.pieces[m.pieces-1] = m.last
	}
}

// minLent is how many octets of payload in an FPDU are rather lent than copied: for fewer, a piece of their
// own costs the kernel more than the pass that copies and checks costs here.
const minLent = 8 << 10

// Gather appends the FPDUs of r, which Next has frozen and Acked has not released, to v, which has Space for them. It
// returns false when r holds something else than whole FPDUs.
func (s *Sender) Gather(r seq.Range, v *Vector) bool {
	i, ok := s.find(r.Start)
	for at := r.Start; at.Less(r.End); i++ {
		if !ok || i == s.tail || s.desc(i).at != at || r.End.Less(s.end(i)) {
			return false
		}
		d, end := s.desc(i), s.end(i)
		if int(d.n) < minLent || !s.cfg.lend(v, s.src, d.ref, int(d.n)) {
			s.put(v.Take(end.Diff(at)), d)
		}
		at, s.last = end, i
	}
	return true
}

// lend appends the FPDU of the ULPDU ref of n octets, whose body stays where src has it. It returns false, and does
// nothing, when there are markers to go between, or src does not lend it.
func (f Framing) lend(v *Vector, src Source, ref ulpdu.Ref, n int) bool {
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
	front := v.Take(lengthLen + head)
	pad := -(lengthLen + n) & 3
	crc := uint32(0)
	if f.CRC {
		crc = checksum.CRC(checksum.CRC(0, front), body)
	}
	v.lend(body)
	tail := v.Take(pad + crcLen)
	clear(tail[:pad])
	if f.CRC {
		crc = checksum.CRC(crc, tail[:pad])
	}
	binary.LittleEndian.PutUint32(tail[pad:], crc)
	return true
}
