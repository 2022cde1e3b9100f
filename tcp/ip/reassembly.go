package ip

import (
	"xwarp/tcp/tick"
)

// Reassembler puts fragments together (RFC 815; RFC 8200, 4.5). A datagram whose fragments overlap is dropped as a
// whole (RFC 5722; RFC 1858 describes the attack). The Reassembler owns one buffer for each slot, allocated when the
// slot is first used.
type Reassembler struct {
	slots []datagram
	n     ReassemblyCounters
}

// ReassemblyCounters count the outcomes of fragments and datagrams.
type ReassemblyCounters struct {
	Fragments, Whole              uint64
	Overlaps, TooLong, TooMany    uint64 // datagrams dropped; TooMany: too many holes
	Timeouts, Evicted, Duplicates uint64
	Malformed                     uint64 // fragments dropped: no bytes, or not a multiple of 8 and not the last
	MixedECN                      uint64 // datagrams dropped: fragments with both CE and Not-ECT (RFC 3168, 5.3)
}

type fragmentKey struct {
	src, dst Addr
	id       uint32
	proto    uint8
	v6       bool
}

// datagram is a datagram under reassembly. Its holes are the missing bytes (RFC 815).
type datagram struct {
	used   bool
	dead   bool // dropped: further fragments are ignored until its time is over (RFC 5722)
	key    fragmentKey
	until  tick.Time
	length int // -1 until the last fragment arrives
	have   int
	nHoles int
	holes  [maxHoles]hole
	proto  uint8 // from the first fragment
	tos    uint8
	ecn    uint8 // bit n: a fragment with ECN codepoint n arrived
	buf    []byte
}

// hole is the missing bytes from first to last, inclusive as in RFC 815.
type hole struct{ first, last int }

// Init removes all datagrams from r and limits their number to limit. A limit outside 1 to MaxDatagrams means
// MaxDatagrams.
func (r *Reassembler) Init(limit int) {
	if limit <= 0 || limit > MaxDatagrams {
		limit = MaxDatagrams
	}
	slots := r.slots
	if len(slots) != limit {
		slots = make([]datagram, limit)
	}
	for i := range slots {
		slots[i].used = false
	}
	*r = Reassembler{slots: slots}
}

// Counters returns the counters.
func (r *Reassembler) Counters() ReassemblyCounters { return r.n }

// Add adds the fragment with header h. If this completes a datagram, Add sets *h to the datagram's header and returns
// its payload, without the IPv6 extension headers behind the fragment header. The payload is memory of r and valid
// until the next call. Otherwise Add returns nil.
func (r *Reassembler) Add(h *Header, payload []byte, now tick.Time) []byte {
	r.n.Fragments++
	size := len(payload)
	if size == 0 || h.FragMore && size%8 != 0 {
		r.n.Malformed++
		return nil
	}
	d := r.findOrAdd(h, now)
	if d.dead {
		return nil
	}
	if h.FragOff+size > maxDatagram {
		r.n.TooLong++
		d.dead = true
		return nil
	}
	if !d.fillHoles(r, h, size) {
		return nil
	}
	copy(d.buf[h.FragOff:], payload)
	if h.FragOff == 0 {
		d.proto = h.Proto
	}
	d.mergeECN(h.TOS, d.have == size)
	if d.nHoles > 0 {
		return nil
	}
	d.used = false
	if d.ecn&mixedECN == mixedECN {
		r.n.MixedECN++
		return nil
	}
	r.n.Whole++
	return d.assemble(h)
}

// assemble makes h the header of the complete datagram and returns the payload, or nil if an extension header is
// invalid.
func (d *datagram) assemble(h *Header) []byte {
	h.Fragment, h.FragMore, h.FragOff = false, false, 0
	h.Proto, h.TOS, h.PayloadLen = d.proto, d.tos, d.length
	off := 0
	if h.V6 {
		var err error
		if off, err = h.extensions(d.buf[:d.length], 0); err != nil || h.Fragment {
			return nil
		}
		h.PayloadLen -= off
	}
	return d.buf[off:d.length]
}

// mixedECN are the bits of Not-ECT and CE in datagram.ecn. A datagram that has both must be dropped (RFC 3168, 5.3).
const mixedECN = 1<<0 | 1<<3

// mergeECN adds the TOS byte of a fragment: CE in one fragment marks the datagram (RFC 3168, 5.3). first reports that
// it is the first fragment to arrive.
func (d *datagram) mergeECN(tos uint8, first bool) {
	if first {
		d.ecn = 0
	}
	d.ecn |= 1 << (tos & 3)
	if first || tos&3 == 3 {
		d.tos = tos
	}
}

// findOrAdd returns the datagram that h belongs to. If it is new, it gets a free slot, or that of the oldest datagram.
func (r *Reassembler) findOrAdd(h *Header, now tick.Time) *datagram {
	key := fragmentKey{src: h.Src, dst: h.Dst, id: h.ID, v6: h.V6}
	if !h.V6 {
		key.proto = h.Proto
	}
	var free *datagram
	for i := range r.slots {
		d := &r.slots[i]
		if d.used && d.until <= now {
			d.used = false
			r.n.Timeouts++
		}
		switch {
		case d.used && d.key == key:
			return d
		case !d.used && (free == nil || free.used):
			free = d
		case free == nil || free.used && d.until < free.until:
			free = d
		}
	}
	if free.used {
		r.n.Evicted++
	}
	if free.buf == nil {
		free.buf = make([]byte, maxDatagram)
	}
	*free = datagram{used: true, key: key, until: now.Add(reassemblyTime), length: -1,
		buf: free.buf}
	free.holes[0], free.nHoles = hole{0, maxDatagram}, 1
	return free
}

// fillHoles removes size bytes at h.FragOff from the holes (RFC 815, 3) and reports whether the fragment must be
// copied. A fragment whose bytes all arrived before is ignored; one of which a part arrived before drops the datagram.
func (d *datagram) fillHoles(r *Reassembler, h *Header, size int) bool {
	first, last := h.FragOff, h.FragOff+size-1
	if d.length >= 0 && (last >= d.length || !h.FragMore && last != d.length-1) {
		return d.discard(&r.n.Overlaps)
	}
	for i := range d.nHoles {
		o := d.holes[i]
		if first > o.last || last < o.first {
			continue
		}
		behind := !h.FragMore && o.last != maxDatagram // bytes behind this end arrived before
		if first < o.first || last > o.last || behind {
			return d.discard(&r.n.Overlaps)
		}
		return d.splitHole(i, first, last, h.FragMore) || d.discard(&r.n.TooMany)
	}
	r.n.Duplicates++ // all of its bytes arrived before: ignored (RFC 8200, 4.5)
	return false
}

// discard drops the datagram: its further fragments are ignored. It increments reason, a counter, and returns false.
func (d *datagram) discard(reason *uint64) bool {
	*reason++
	d.dead = true
	return false
}

// splitHole removes the bytes first to last from hole i: up to two holes remain. It returns false if these are too
// many.
func (d *datagram) splitHole(i, first, last int, more bool) bool {
	o := d.holes[i]
	d.nHoles--
	d.holes[i] = d.holes[d.nHoles]
	add := func(a, b int) bool {
		if d.nHoles == len(d.holes) {
			return false
		}
		d.holes[d.nHoles] = hole{a, b}
		d.nHoles++
		return true
	}
	if first > o.first && !add(o.first, first-1) {
		return false
	}
	if more && last < o.last && !add(last+1, o.last) {
		return false
	}
	if !more {
		d.length = last + 1
	}
	d.have += last - first + 1
	return true
}
