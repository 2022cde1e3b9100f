package ring

import "sync/atomic"

// shared is a ring in memory shared with the kernel.
type shared[T any] struct {
	prod, cons, flags *uint32
	desc              []T // the entries; their number is a power of two
}

// producer is the writing end of a ring. Written entries are invisible to the other end until publish.
type producer[T any] struct {
	shared[T]
	head uint32 // index of the next entry to write
	tail uint32 // the consumer's index when last read
}

// consumer is the reading end of a ring. It owns read entries until release.
type consumer[T any] struct {
	shared[T]
	head uint32 // index of the next entry to read
	tail uint32 // the producer's index when last read
}

func newProducer[T any](s shared[T]) producer[T] {
	return producer[T]{shared: s, head: atomic.LoadUint32(s.prod), tail: atomic.LoadUint32(s.cons)}
}

func newConsumer[T any](s shared[T]) consumer[T] {
	return consumer[T]{shared: s, head: atomic.LoadUint32(s.cons), tail: atomic.LoadUint32(s.prod)}
}

// room returns the number of entries that can be written. It reads the consumer's index again only if, by the index
// last read, there are fewer than want.
func (r *producer[T]) room(want uint32) uint32 {
	free := uint32(len(r.desc)) - (r.head - r.tail)
	if free < want {
		r.tail = atomic.LoadUint32(r.cons)
		free = uint32(len(r.desc)) - (r.head - r.tail)
	}
	return free
}

// put writes the next entry. There must be room.
func (r *producer[T]) put(v T) {
	r.desc[r.head&uint32(len(r.desc)-1)] = v
	r.head++
}

// publish makes all written entries visible to the consumer.
func (r *producer[T]) publish() { atomic.StoreUint32(r.prod, r.head) }

// used returns the number of entries that the consumer has not read, including unpublished ones.
func (r *producer[T]) used() uint32 {
	r.tail = atomic.LoadUint32(r.cons)
	return r.head - r.tail
}

// needWakeup reports whether the kernel needs a system call to process the ring.
func (r *producer[T]) needWakeup() bool { return atomic.LoadUint32(r.flags)&needWakeup != 0 }

// avail returns the number of entries that can be read. It reads the producer's index again only if, by the index last
// read, there are fewer than want. The result never exceeds the ring's size, even if the index is wrong.
func (r *consumer[T]) avail(want uint32) uint32 {
	n := r.tail - r.head
	if n < want {
		r.tail = atomic.LoadUint32(r.prod)
		n = r.tail - r.head
	}
	return min(n, uint32(len(r.desc)))
}

// next reads an entry. There must be one. The pointer is valid until release.
func (r *consumer[T]) next() *T {
	d := &r.desc[r.head&uint32(len(r.desc)-1)]
	r.head++
	return d
}

// release returns the read entries to the producer.
func (r *consumer[T]) release() { atomic.StoreUint32(r.cons, r.head) }
