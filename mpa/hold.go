package mpa

import (
	"fmt"

	"xwarp/tcp/seq"
)

// What a Receiver keeps until its FPDU is complete or delivered: bytes in blocks, and records of FPDUs.

// hold calls holdRange and counts the bytes that found no room as LimitDrops.
func (r *Receiver) hold(from, to int64, overLimit bool) int64 {
	n := r.holdRange(from, to, overLimit)
	r.stats.LimitDrops += uint64(to - from - n)
	return n
}

// holdRange stores the bytes [from, to) of the segment and returns how many found room. With overLimit the limits may
// be exceeded.
func (r *Receiver) holdRange(from, to int64, overLimit bool) (n int64) {
	floor := r.inOrder.chainEnd
	if !r.inOrder.records.empty() {
		floor = r.cfg.Pool.records[r.inOrder.records.head].start
	}
	for from < to {
		b := r.chunk(from, to)
		k := int64(r.reassembly.store(from, b, floor, overLimit))
		n += k
		from += k
		if k < int64(len(b)) {
			break
		}
	}
	return n
}

// holdPartial holds the segment's bytes from stream offset at on, which begin inside or at the start of an incomplete
// FPDU.
func (r *Receiver) holdPartial(at int64, overLimit bool) {
	n := r.hold(at, r.seg.end, overLimit)
	r.stats.HeldPartial += uint64(n)
	r.seg.kept = at + n
}

// holdUnknown holds the segment's bytes from stream offset at on, in which no FPDU start is known.
func (r *Receiver) holdUnknown(at int64) {
	r.seg.kept = at + r.hold(at, r.seg.end, false)
	r.stats.HeldUnknown += uint64(r.seg.kept - at)
}

// holdFPDU holds the bytes of the FPDU in [start, end) that lie in the segment. It reports whether all found room;
// otherwise it stores none of them.
func (r *Receiver) holdFPDU(start, end int64) bool {
	from, to := max(start, r.seg.start), min(end, r.seg.end)
	n := r.holdRange(from, to, false)
	if n < to-from {
		r.reassembly.release(from, from+n)
		return false
	}
	return true
}

// releaseFPDU releases the held bytes of the FPDU in [start, end): those outside of the segment.
func (r *Receiver) releaseFPDU(start, end int64) {
	if start < r.seg.start {
		r.reassembly.release(start, min(end, r.seg.start))
	}
	if end > r.seg.end {
		r.reassembly.release(max(start, r.seg.end), end)
	}
}

// Audit checks that each byte before sequence number to, up to which TCP acknowledges, has been placed or is held,
// unless an error has ended the stream. It also checks that the held bytes are those that belong to no placed FPDU.
func (r *Receiver) Audit(to seq.Num) error {
	if r.err != nil {
		return nil
	}
	end, held := r.inOrder.end, r.unplaced(&r.inOrder)+r.inOrder.end-r.inOrder.chainEnd
	for i := range r.islands {
		p := &r.islands[i]
		if p.start == end {
			end = p.end
		}
		if held += p.end - p.start; p.chainStart >= 0 {
			held += p.chainStart - p.chainEnd + r.unplaced(p)
		}
	}
	if n := r.offset(to) - end; n > 0 {
		return fmt.Errorf("%d bytes before the left edge, from stream offset %d on, are neither placed nor held", n, end)
	}
	if held != int64(r.reassembly.held) {
		return fmt.Errorf("%d bytes are held, want %d", r.reassembly.held, held)
	}
	return nil
}

// unplaced returns the bytes of the complete FPDUs of p that the sink has not placed.
func (r *Receiver) unplaced(p *part) (n int64) {
	for i := p.records.head; i != none; i = r.cfg.Pool.records[i].next {
		if rec := &r.cfg.Pool.records[i]; rec.kind == unplaced {
			n += rec.end - rec.start
		}
	}
	return n
}

// hasFreeRecord reports whether one more record is allowed. A few in order may exceed the limits.
func (r *Receiver) hasFreeRecord(inOrder bool) bool {
	p := r.cfg.Pool
	return inOrder && r.inOrder.records.n < overdraft ||
		r.recordsUsed < r.cfg.RecordLimit && p.recordsUsed < p.recordLimit
}

func (r *Receiver) newRecord() int32 {
	r.recordsUsed++
	r.stats.RecordsHigh = max(r.stats.RecordsHigh, r.recordsUsed)
	return r.cfg.Pool.newRecord()
}

func (r *Receiver) freeRecord(i int32) {
	r.cfg.Pool.freeRecord(i)
	r.recordsUsed--
}

// freeList frees the records of l, which is empty afterwards.
func (r *Receiver) freeList(l *recordList) {
	for i := l.head; i != none; {
		next := r.cfg.Pool.records[i].next
		r.freeRecord(i)
		i = next
	}
	*l = noRecords
}

// reassembly holds bytes of one stream in blocks of the pool. Block k holds the stream bytes [k*blockSize,
// (k+1)*blockSize). Each byte is stored once and released once.
type reassembly struct {
	pool   *Pool
	table  []int32 // entry k&(len-1) is 1 + the pool's block of stream block k, or 0; len is a power of two
	blocks int     // blocks in use
	limit  int     // blocks
	held   int     // bytes
}

// init empties m. Its blocks must have been released.
func (m *reassembly) init(pool *Pool, limit int) {
	clear(m.table)
	*m = reassembly{pool: pool, table: m.table, limit: max(1, limit/blockSize)}
}

// slot returns the table entry of stream block k.
func (m *reassembly) slot(k int64) *int32 { return &m.table[k&int64(len(m.table)-1)] }

// store stores b, which begins at stream offset off, and returns how many bytes found room. floor is at or before the
// first byte held. With overLimit the limits may be exceeded.
func (m *reassembly) store(off int64, b []byte, floor int64, overLimit bool) int {
	n := 0
	for n < len(b) {
		k := off >> blockBits
		if !m.growTable(k, floor>>blockBits) {
			break
		}
		s := m.slot(k)
		if *s == 0 {
			if m.blocks >= m.limit && !overLimit {
				break
			}
			i, ok := m.pool.newBlock(overLimit)
			if !ok {
				break
			}
			m.blocks++
			*s = i + 1
		}
		c := copy(m.pool.data(*s - 1)[off&(blockSize-1):], b[n:])
		m.pool.heldIn[*s-1] += uint16(c)
		n += c
		off += int64(c)
	}
	m.held += n
	return n
}

// growTable makes the table span the blocks from floor to k. It returns false if they have more than maxSpan bytes.
func (m *reassembly) growTable(k, floor int64) bool {
	span := k - floor + 1
	if span <= int64(len(m.table)) {
		return true
	}
	if span > maxSpan>>blockBits {
		return false
	}
	size := int64(max(16, 2*len(m.table)))
	for size < span {
		size *= 2
	}
	old := m.table
	m.table = make([]int32, size)
	for b := floor; b < floor+int64(len(old)); b++ {
		*m.slot(b) = old[b&int64(len(old)-1)]
	}
	return true
}

// at returns the memory of the stream bytes from off to the end of off's block, or nil if no byte of that block is
// held. Bytes in it that are not held have no meaning.
func (m *reassembly) at(off int64) []byte {
	if len(m.table) == 0 {
		return nil
	}
	s := *m.slot(off >> blockBits)
	if s == 0 {
		return nil
	}
	return m.pool.data(s - 1)[off&(blockSize-1):]
}

// release releases the bytes [from, to), all of which are held.
func (m *reassembly) release(from, to int64) {
	for from < to {
		s := m.slot(from >> blockBits)
		c := min(to, (from|(blockSize-1))+1) - from
		if *s == 0 {
			return
		}
		m.held -= int(c)
		m.pool.heldIn[*s-1] -= uint16(c)
		if m.pool.heldIn[*s-1] == 0 {
			m.pool.freeBlock(*s - 1)
			m.blocks--
			*s = 0
		}
		from += c
	}
}

// releaseAll releases all held bytes and their blocks.
func (m *reassembly) releaseAll() {
	for i, s := range m.table {
		if s != 0 {
			m.pool.heldIn[s-1] = 0
			m.pool.freeBlock(s - 1)
			m.table[i] = 0
		}
	}
	m.blocks, m.held = 0, 0
}

// space returns how many bytes m can still hold within its limits.
func (m *reassembly) space() int {
	return max(0, min(m.limit-m.blocks, m.pool.limit-m.pool.used)) * blockSize
}
