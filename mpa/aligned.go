package mpa

import (
	"encoding/binary"

	"xwarp/mpa/ulp"
	"xwarp/tcp/seq"
)

// WantsCRC reports whether OfferCRC would use the CRC32C of the octets of pieces, n in all, as far as their length field shows. They
// may be wrong yet.
func (r *Receiver) WantsCRC(at seq.Num, pieces [][]byte, n int) bool {
	p := r.inOrder.end
	if !r.cfg.CRC || r.offset(at) != p {
		return false
	}
	_, _, ok := r.fits(pieces, p, n)
	return ok
}

// fits returns where the ULPDU_Length field is in pieces, which begin an FPDU at offset p of the stream, and the octets of the ULPDU; it
// reports whether that gives the FPDU n octets.
func (r *Receiver) fits(pieces [][]byte, p int64, n int) (length, size int, ok bool) {
	b := pieces[0]
	length = int(r.lengthAt(p) - p)
	if len(b) < length+lengthLen || r.cfg.Markers && len(pieces) != 1 {
		return 0, 0, false
	}
	size = int(binary.BigEndian.Uint16(b[length:]))
	return length, size, size <= MaxULPDU && r.cfg.Size(uint64(p), size) == n
}

// pendingDelivery is an FPDU that is placed and waits for the left edge alone.
type pendingDelivery struct {
	on         bool
	kept       uint8 // octets of hdr
	n          int   // of the ULPDU
	start, end int64
	hdr        [HeaderKept]byte
}

// alignedFPDU is the first step of offer: it places the octets of pieces, n in all, at offset p of the stream, when they are exactly
// one right FPDU, the next one, of a stream in which nothing waits: what an aligned sender's segment is. It reports whether they
// are. The way that is for everything, over segment, island and record, comes to the same and takes 30 ns more for each FPDU.
func (r *Receiver) alignedFPDU(p int64, pieces [][]byte, n int, crc *uint32) (err *ulp.Error, ok bool) {
	e := &r.inOrder
	if p != e.end || e.chain != p || !e.list.empty() || len(r.islands) != 0 || r.pending.on || r.stalled || r.dead != nil ||
		r.cfg.Layered || len(pieces) == 0 {
		return nil, false
	}
	length, size, ok := r.fits(pieces, p, n)
	if !ok {
		return nil, false
	}
	end := p + int64(n)
	for _, b := range pieces {
		n -= len(b)
	}
	if n != 0 || r.cfg.Markers && !r.markersRight(pieces, p, p+int64(length), end) {
		return nil, false
	}
	if r.cfg.CRC && !(crc != nil && *crc == crcResidue) && (crc != nil || !crcRight(pieces)) {
		return nil, false
	}
	v, d := r.viewOf(pieces, p, p+int64(length), size), &r.pending
	if b := v.Pieces(); len(b) > 0 && len(b[0]) >= HeaderKept {
		d.hdr, d.kept = [HeaderKept]byte(b[0]), HeaderKept
	} else {
		d.kept = uint8(v.CopyTo(d.hdr[:], 0))
	}
	if err := r.sink.Place(v, true); err != nil {
		return r.die(err), true
	}
	d.on, d.n, d.start, d.end = true, size, p, end
	e.chain, e.end = end, end
	r.stats.InOrder++
	r.stats.FPDUs++
	r.stats.Aligned++
	r.stats.RecordsHigh = max(r.stats.RecordsHigh, 1)
	r.trust.clean()
	return nil, true
}

// deliverPending delivers what alignedFPDU placed, when the left edge has passed it.
func (r *Receiver) deliverPending() *ulp.Error {
	d := &r.pending
	d.on = false
	r.stats.Delivered++
	if err := r.sink.Deliver(d.hdr[:d.kept], d.n); err != nil {
		return r.halt(err)
	}
	return r.dead
}

// recordPending makes the pending FPDU an ordinary record, because another one comes before its delivery. It is the only one.
func (r *Receiver) recordPending() {
	d := &r.pending
	d.on = false
	i, _ := r.newRecord(true)
	rec := &r.cfg.Pool.recs[i]
	rec.start, rec.end, rec.n, rec.count, rec.kind = d.start, d.end, uint16(d.n), 1, placed
	rec.hdr = d.hdr
	r.inOrder.list = recordList{i, i, 1}
}
