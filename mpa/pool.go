package mpa

import "xwarp/mpa/ulpdu"

const (
	blockBits = 11
	blockSize = 1 << blockBits // a multiple of MarkerInterval, so that no block border cuts a marker
	slabSize  = 64             // blocks allocated together
)

// Pool is the memory that the receivers of one worker share: blocks for bytes whose FPDU is not complete, and records
// for FPDUs that are placed and not delivered. It grows on demand up to its limits and does not shrink. Beyond the
// limits it gives each connection only what moves its left edge: byteOverdraft bytes and overdraft records. So no
// connection can starve another. It is not safe for concurrent use.
type Pool struct {
	slabs      [][]byte
	heldIn     []uint16 // bytes held in each block
	freeBlocks []int32
	used       int // blocks
	limit      int // blocks

	records       []record
	freeRecordsAt int32 // first free record, linked through next; none at the end
	recordsUsed   int
	recordLimit   int

	// Scratch memory of a Receiver's call.
	pieces [][]byte
	view   ulpdu.View
}

// none is the index of no block and of no record, and a stream offset that is not known.
const none = -1

// NewPool returns a pool of at most maxBytes bytes, rounded up to whole blocks, and maxRecords records. Zero means
// DefaultPool and DefaultRecords.
func NewPool(maxBytes, maxRecords int) *Pool {
	if maxBytes <= 0 {
		maxBytes = DefaultPool
	}
	if maxRecords <= 0 {
		maxRecords = DefaultRecords
	}
	return &Pool{limit: (maxBytes + blockSize - 1) / blockSize, recordLimit: maxRecords,
		freeRecordsAt: none}
}

// InUse returns the bytes of the blocks in use and the number of records in use.
func (p *Pool) InUse() (bytes, records int) { return p.used * blockSize, p.recordsUsed }

// newBlock returns a free block. With overLimit the limit may be exceeded.
func (p *Pool) newBlock(overLimit bool) (int32, bool) {
	if p.used >= p.limit && !overLimit {
		return none, false
	}
	if len(p.freeBlocks) == 0 {
		p.slabs = append(p.slabs, make([]byte, slabSize*blockSize))
		for i := range slabSize {
			p.freeBlocks = append(p.freeBlocks, int32(len(p.heldIn)+slabSize-1-i))
		}
		p.heldIn = append(p.heldIn, make([]uint16, slabSize)...)
	}
	b := p.freeBlocks[len(p.freeBlocks)-1]
	p.freeBlocks = p.freeBlocks[:len(p.freeBlocks)-1]
	p.used++
	return b, true
}

// data returns the bytes of block b.
func (p *Pool) data(b int32) []byte {
	i := int(b%slabSize) * blockSize
	return p.slabs[b/slabSize][i : i+blockSize : i+blockSize]
}

func (p *Pool) freeBlock(b int32) {
	p.freeBlocks = append(p.freeBlocks, b)
	p.used--
}

// record is an FPDU, or consecutive silent FPDUs, that is complete and not delivered.
type record struct {
	start, end int64 // in the stream
	next       int32
	n          uint16 // bytes of the ULPDU
	count      uint32 // FPDUs, if silent
	kind       recordKind
	hdr        [HeaderKept]byte
}

type recordKind uint8

const (
	placed   recordKind = iota // Deliver is due
	silent                     // nothing is due
	unplaced                   // the sink did not place it out of order: Place and Deliver are due
)

// newRecord returns a free record. The caller checks the limit.
func (p *Pool) newRecord() int32 {
	p.recordsUsed++
	if p.freeRecordsAt == none {
		p.records = append(p.records, record{next: none})
		return int32(len(p.records) - 1)
	}
	i := p.freeRecordsAt
	p.freeRecordsAt = p.records[i].next
	p.records[i].next = none
	return i
}

func (p *Pool) freeRecord(i int32) {
	p.records[i].next = p.freeRecordsAt
	p.freeRecordsAt = i
	p.recordsUsed--
}

// recordList is a list of records in stream order.
type recordList struct {
	head, tail int32
	n          int
}

var noRecords = recordList{head: none, tail: none}

func (l *recordList) empty() bool { return l.head == none }

// add appends record i, whose next is none.
func (l *recordList) add(p *Pool, i int32) {
	l.join(p, recordList{i, i, 1})
}

// join appends the records of o.
func (l *recordList) join(p *Pool, o recordList) {
	switch {
	case o.empty():
	case l.empty():
		*l = o
	default:
		p.records[l.tail].next = o.head
		l.tail = o.tail
		l.n += o.n
	}
}
