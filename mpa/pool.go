package mpa

import "xwarp/mpa/ulpdu"

const (
	blockBits = 11
	blockSize = 1 << blockBits // a multiple of MarkerInterval, so that no block border cuts a marker
	slabSize  = 64             // blocks that are allocated together
)

// Pool is the memory that the receivers of one worker share: blocks for octets whose FPDU is not
// complete, records for FPDUs that are placed and not delivered. It grows on demand up to its bounds and does
// not shrink. Beyond them it gives each connection only what moves its left edge on: the rest of one FPDU and
// a few records, so that no connection can starve another. It is not safe for concurrent use.
type Pool struct {
	slabs [][]byte
	inUse []uint16 // octets, per block
	free  []int32  // blocks
	used  int      // blocks
	limit int

	recs     []record
	freeRec  int32 // list through next, none at the end
	recUsed  int
	recLimit int

	// Room that each call of a Receiver uses anew.
	pieces [][]byte
	view   ulpdu.View
}

// none is the index of no block and of no record.
const none = -1

// NewPool returns a pool of at most octets octets, rounded up to whole blocks, and records records; 0 means
// DefaultPool and DefaultRecords.
func NewPool(octets, records int) *Pool {
	if octets <= 0 {
		octets = DefaultPool
	}
	if records <= 0 {
		records = DefaultRecords
	}
	return &Pool{limit: (octets + blockSize - 1) / blockSize, recLimit: records, freeRec: none}
}

// InUse returns the octets of blocks and the records that are taken now.
func (p *Pool) InUse() (octets, records int) { return p.used * blockSize, p.recUsed }

// block returns a free block; over lets it exceed the bound.
func (p *Pool) block(over bool) (int32, bool) {
	if p.used >= p.limit && !over {
		return none, false
	}
	if len(p.free) == 0 {
		p.slabs = append(p.slabs, make([]byte, slabSize*blockSize))
		for i := range slabSize {
			p.free = append(p.free, int32(len(p.inUse)+slabSize-1-i))
		}
		p.inUse = append(p.inUse, make([]uint16, slabSize)...)
	}
	b := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	p.used++
	return b, true
}

// data returns the octets of block b.
func (p *Pool) data(b int32) []byte {
	i := int(b%slabSize) * blockSize
	return p.slabs[b/slabSize][i : i+blockSize : i+blockSize]
}

func (p *Pool) freeBlock(b int32) {
	p.free = append(p.free, b)
	p.used--
}

// record is an FPDU, or a run of silent ones, that is complete and not delivered.
type record struct {
	start, end int64 // in the stream
	next       int32
	n          uint16 // octets of the ULPDU
	count      uint32 // FPDUs in a silent run
	kind       recordKind
	hdr        [HeaderKept]byte
}

type recordKind uint8

const (
	placed  recordKind = iota // Deliver is due
	silent                    // nothing is due
	refused                   // the sink refused it out of order: Place and Deliver are due
)

// record returns a free record. The caller minds the bound.
func (p *Pool) record() int32 {
	p.recUsed++
	if p.freeRec == none {
		p.recs = append(p.recs, record{next: none})
		return int32(len(p.recs) - 1)
	}
	i := p.freeRec
	p.freeRec = p.recs[i].next
	p.recs[i].next = none
	return i
}

func (p *Pool) freeRecord(i int32) {
	p.recs[i].next = p.freeRec
	p.freeRec = i
	p.recUsed--
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
		p.recs[l.tail].next = o.head
		l.tail = o.tail
		l.n += o.n
	}
}
