package impair

// fifo is a queue of buffers over a ring that grows.
type fifo struct {
	ring []*Buf // length zero or a power of two
	head int
	n    int
}

func (q *fifo) at(i int) *Buf { return q.ring[(q.head+i)&(len(q.ring)-1)] }

func (q *fifo) push(b *Buf) {
	if q.n == len(q.ring) {
		bigger := make([]*Buf, max(64, 2*len(q.ring)))
		for i := range q.n {
			bigger[i] = q.at(i)
		}
		q.ring, q.head = bigger, 0
	}
	q.ring[(q.head+q.n)&(len(q.ring)-1)] = b
	q.n++
}

// pop returns the oldest buffer, nil when there is none.
func (q *fifo) pop() *Buf {
	if q.n == 0 {
		return nil
	}
	b := q.at(0)
	q.ring[q.head] = nil
	q.head = (q.head + 1) & (len(q.ring) - 1)
	q.n--
	return b
}
