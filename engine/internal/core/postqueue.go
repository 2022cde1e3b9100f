package core

import (
	"sync"
	"sync/atomic"

	"xwarp/ddp/rdmap"
)

// postQueue carries work requests from consumers to the worker: any goroutine puts, only the worker peeks and advances.
// The slots own the memory for gather lists and inline data, so that posting copies, and allocates only until the
// memory of each slot is large enough.
type postQueue[T any] struct {
	mu    sync.Mutex // held by a producer in put
	mask  uint32
	slots []T
	tail  atomic.Uint32 // next slot to fill
	head  atomic.Uint32 // next slot to read
}

func (q *postQueue[T]) init(depth int) {
	n := slots(depth)
	q.slots, q.mask = make([]T, n), uint32(n-1)
}

// slots returns the number of slots of a queue of that depth: the least power of two that is not below depth.
func slots(depth int) int {
	n := 1
	for n < depth {
		n <<= 1
	}
	return n
}

// put calls fill with the next slot. When the queue is full, it does not call fill, and returns false.
func (q *postQueue[T]) put(fill func(*T)) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.tail.Load()
	if t-q.head.Load() > q.mask {
		return false
	}
	fill(&q.slots[t&q.mask])
	q.tail.Store(t + 1)
	return true
}

// peek returns the oldest request, nil when there is none; advance removes it.
func (q *postQueue[T]) peek() *T {
	h := q.head.Load()
	if h == q.tail.Load() {
		return nil
	}
	return &q.slots[h&q.mask]
}

func (q *postQueue[T]) advance() { q.head.Store(q.head.Load() + 1) }

func (q *postQueue[T]) len() int { return int(q.tail.Load() - q.head.Load()) }

// copySend and copyRecv fill slots, whose slices keep their capacity from post to post.
func copySend(to, wr *rdmap.SendWR) {
	sgl, inline := append(to.SGL[:0], wr.SGL...), append(to.Inline[:0], wr.Inline...)
	*to = *wr
	to.SGL, to.Inline = sgl, inline
}

func copyRecv(to, wr *rdmap.RecvWR) {
	to.ID, to.Flags, to.SGL = wr.ID, wr.Flags, append(to.SGL[:0], wr.SGL...)
}
