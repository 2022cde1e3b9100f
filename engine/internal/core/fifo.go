package core

import (
	"fmt"
	"sync/atomic"

	"xwarp/engine/verbs"
)

// fifo is a bounded queue for any number of producers and consumers. Push and Pop never block and never allocate.
// Positions grow without end; position pos uses slot pos modulo the number of slots. The turn of that slot is pos while
// it is free for the producer of the position, and pos+1 while it is filled for its consumer.
type fifo[T any] struct {
	mask  uint64
	slots []fifoSlot[T]
	_     [64]byte
	tail  atomic.Uint64
	_     [56]byte
	head  atomic.Uint64
	_     [56]byte
}

type fifoSlot[T any] struct {
	turn atomic.Uint64
	v    T
}

// newFIFO returns a queue of at least depth elements (rounded up to a power of two, 2 or more).
func newFIFO[T any](depth int) (*fifo[T], error) {
	if depth < 1 || depth > verbs.MaxCQDepth {
		return nil, fmt.Errorf("%w: queue depth %d: want 1 to %d", verbs.ErrInvalid, depth,
			verbs.MaxCQDepth)
	}
	n := 2 // with one slot, "filled" and "free in the next round" would be the same turn
	for n < depth {
		n <<= 1
	}
	r := &fifo[T]{mask: uint64(n - 1), slots: make([]fifoSlot[T], n)}
	for i := range r.slots {
		r.slots[i].turn.Store(uint64(i))
	}
	return r, nil
}

// Len returns the number of elements, exact only without concurrent calls, and never negative.
func (r *fifo[T]) Len() int {
	head := r.head.Load()
	return int(r.tail.Load() - head)
}

// Push adds *v. It returns false if r is full.
func (r *fifo[T]) Push(v *T) bool {
	pos := r.tail.Load()
	for {
		s := &r.slots[pos&r.mask]
		switch d := int64(s.turn.Load() - pos); {
		case d == 0:
			if r.tail.CompareAndSwap(pos, pos+1) {
				s.v = *v
				s.turn.Store(pos + 1)
				return true
			}
			pos = r.tail.Load()
		case d < 0:
			return false
		default:
			pos = r.tail.Load()
		}
	}
}

// Pop moves the oldest element into *v. It returns false if r is empty.
func (r *fifo[T]) Pop(v *T) bool {
	pos := r.head.Load()
	for {
		s := &r.slots[pos&r.mask]
		switch d := int64(s.turn.Load() - (pos + 1)); {
		case d == 0:
			if r.head.CompareAndSwap(pos, pos+1) {
				*v = s.v
				var zero T
				s.v = zero
				s.turn.Store(pos + r.mask + 1)
				return true
			}
			pos = r.head.Load()
		case d < 0:
			return false
		default:
			pos = r.head.Load()
		}
	}
}
