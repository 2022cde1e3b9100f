package loss

import (
	"cmp"
	"slices"

	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// place is the list that an outstanding record is on. Each record is on exactly one.
type place uint8

const (
	inFlight  place = iota // sent, neither acknowledged nor lost: counted in the pipe, ordered by the time sent
	lost                   // sent once and lost, or moved here by forget; in sequence order
	lostAgain              // sent more than once and lost, unless forget moved it
	sacked                 // selectively acknowledged; next leads towards the end of the consecutive ones, see skip
	places
)

// record describes one transmitted segment, in 32 bytes of memory. Its boundaries never change, except that its head is
// cut off when the peer acknowledges part of it.
type record struct {
	sent          tick.Time // last transmission
	start         seq.Num
	size          uint32
	prev, next    uint32 // identifiers on the list of its place
	place         place
	transmissions uint8 // number of transmissions, 255 for more
	kind          Kind
	stale         bool // it was SACKed before forget dropped that information: it may have arrived long ago
}

func (r *record) end() seq.Num        { return r.start.Add(int(r.size)) }
func (r *record) retransmitted() bool { return r.transmissions > 1 }
func (r *record) span() seq.Range     { return seq.Range{Start: r.start, End: r.end()} }

// list is a doubly linked list of records in the ring. first and last are valid only if n > 0; the list of place sacked
// uses only n and bytes.
type list struct {
	first, last uint32
	n           int
	bytes       int
}

// ring holds the records of the bytes between SND.UNA and SND.NXT in sequence order. A record's identifier
// counts up by one and wraps; its slot is the identifier modulo the capacity, so identifiers survive growth.
type ring struct {
	slot       []record
	head, tail uint32 // identifiers of the first record and of the next new one
	list       [places]list
}

func (q *ring) reset() {
	*q = ring{slot: q.slot}
	if q.slot == nil || len(q.slot) > keptRecords {
		q.slot = make([]record, firstRecords)
	}
}

func (q *ring) len() int             { return int(q.tail - q.head) }
func (q *ring) at(id uint32) *record { return &q.slot[id&uint32(len(q.slot)-1)] }

// push appends a record in flight. It allocates only when more records are outstanding than ever before.
func (q *ring) push(start seq.Num, size int, k Kind, now tick.Time) {
	if q.len() == len(q.slot) {
		q.grow()
	}
	r := q.at(q.tail)
	r.sent, r.start, r.size = now, start, uint32(size) // field by field: the compiler would copy a composite literal
	r.prev, r.next, r.place, r.transmissions, r.kind, r.stale = 0, 0, inFlight, 1, k, false
	q.append(q.tail, r, &q.list[inFlight])
	q.tail++
}

func (q *ring) grow() {
	old := *q
	q.slot = make([]record, 2*len(old.slot))
	for id := q.head; id != q.tail; id++ {
		*q.at(id) = *old.at(id)
	}
}

// link appends id to the list of p.
func (q *ring) link(id uint32, p place) {
	r, l := q.at(id), &q.list[p]
	r.place = p
	if p == sacked {
		l.bytes += int(r.size)
		l.n++
		r.next = id + 1
		return
	}
	q.append(id, r, l)
}

// append puts r, with identifier id, at the end of l.
func (q *ring) append(id uint32, r *record, l *list) {
	l.bytes += int(r.size)
	if l.n++; l.n == 1 {
		l.first = id
	} else {
		r.prev = l.last
		q.at(l.last).next = id
	}
	l.last = id
}

// unlink takes id out of its list.
func (q *ring) unlink(id uint32) {
	r := q.at(id)
	l := &q.list[r.place]
	l.bytes -= int(r.size)
	l.n--
	if r.place == sacked || l.n == 0 {
		return
	}
	switch id {
	case l.first:
		l.first = r.next
	case l.last:
		l.last = r.prev
	default:
		q.at(r.prev).next = r.next
		q.at(r.next).prev = r.prev
	}
}

func (q *ring) move(id uint32, p place) {
	q.unlink(id)
	q.link(id, p)
}

// pop drops the first record.
func (q *ring) pop() {
	q.unlink(q.head)
	q.head++
}

// trim drops the first n bytes of the first record.
func (q *ring) trim(n int) {
	r := q.at(q.head)
	q.list[r.place].bytes -= n
	r.start = r.start.Add(n)
	r.size -= uint32(n)
}

// find returns the identifier of the first record that begins at or after x, tail if none does.
func (q *ring) find(x seq.Num) uint32 {
	lo, n := q.head, q.tail-q.head
	for n > 0 {
		half := n / 2
		if q.at(lo + half).start.Less(x) {
			lo += half + 1
			n -= half + 1
		} else {
			n = half
		}
	}
	return lo
}

// skip returns the identifier of the first record from id on that is not selectively acknowledged, tail if there is
// none. It lets the records on its way point further ahead, so that the next search is shorter.
func (q *ring) skip(id uint32) uint32 {
	for id != q.tail {
		r := q.at(id)
		if r.place != sacked {
			break
		}
		if r.next != q.tail {
			if n := q.at(r.next); n.place == sacked {
				r.next = n.next
			}
		}
		id = r.next
	}
	return id
}

// forget moves all selectively acknowledged and all lost records to the list lost, in sequence order.
func (q *ring) forget() {
	q.list[lost], q.list[lostAgain], q.list[sacked] = list{}, list{}, list{}
	for id := q.head; id != q.tail; id++ {
		if r := q.at(id); r.place != inFlight {
			r.stale = r.stale || r.place == sacked
			q.link(id, lost)
		}
	}
}

// restore puts all lost records back in flight, and orders the list by the time sent. The lists of lost records have
// another order, and walkRACK relies on this one.
func (q *ring) restore() {
	ids := make([]uint32, 0, q.len())
	for id := q.head; id != q.tail; id++ {
		if q.at(id).place != sacked {
			ids = append(ids, id)
		}
	}
	slices.SortStableFunc(ids, func(a, b uint32) int {
		return cmp.Compare(q.at(a).sent, q.at(b).sent)
	})
	q.list[inFlight], q.list[lost], q.list[lostAgain] = list{}, list{}, list{}
	for _, id := range ids {
		q.link(id, inFlight)
	}
}
