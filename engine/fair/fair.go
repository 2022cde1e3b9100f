// Package fair shares the turns of one worker fairly among owners, whatever their number of queue pairs.
package fair

// Queue holds items that wait for a turn. Next rotates among the owners, and takes the items of one owner in the order
// of Push. The zero value is empty. Only one goroutine may use a Queue and its Classes.
type Queue[T any] struct {
	classes []*Class[T] // classes with items; the first one has the next turn
	n       int         // items of all classes
}

// Class is one owner's part of a Queue. The zero value is empty. It must not move while it has items.
type Class[T any] struct {
	items []T // items[head:] are waiting
	head  int
}

// Push adds v after the other items of its owner. The caller must not push an item that is waiting already.
func (q *Queue[T]) Push(c *Class[T], v T) {
	if c.head == len(c.items) {
		c.items, c.head = c.items[:0], 0
		q.classes = append(q.classes, c)
	} else if len(c.items) == cap(c.items) && c.head > len(c.items)/2 {
		n := copy(c.items, c.items[c.head:])
		clear(c.items[n:])
		c.items, c.head = c.items[:n], 0
	}
	c.items = append(c.items, v)
	q.n++
}

// Next removes and returns the first item of the next owner. It returns false if no item waits.
func (q *Queue[T]) Next() (v T, ok bool) {
	if q.n == 0 {
		return v, false
	}
	c := q.classes[0]
	var zero T
	v, c.items[c.head] = c.items[c.head], zero
	c.head++
	q.n--
	last := copy(q.classes, q.classes[1:])
	if q.classes[last] = c; c.head == len(c.items) {
		q.classes[last] = nil
		q.classes = q.classes[:last]
	}
	return v, true
}

// Len returns the number of waiting items.
func (q *Queue[T]) Len() int { return q.n }

// All calls f for each waiting item.
func (q *Queue[T]) All(f func(T)) {
	for _, c := range q.classes {
		for _, v := range c.items[c.head:] {
			f(v)
		}
	}
}
