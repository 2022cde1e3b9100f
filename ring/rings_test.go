package ring

import (
	"sync"
	"testing"
)

func TestRingWraps(t *testing.T) {
	for _, start := range []uint32{0, 1<<31 - 2, nearWrap, 1<<32 - 1} {
		m := fakeRing[uint64](8, start)
		p, c := newProducer(m), newConsumer(m)
		next, want := uint64(0), uint64(0)
		for round := range 20 {
			n := uint32(round%8 + 1)
			if p.room(n) < n {
				t.Fatalf("start %d round %d: room %d, want %d", start, round, p.room(n), n)
			}
			for range n {
				p.put(next)
				next++
			}
			if c.avail(n) != 0 {
				t.Fatalf("start %d: %d entries visible before publish", start, c.avail(n))
			}
			p.publish()
			if got := c.avail(8); got != n {
				t.Fatalf("start %d round %d: %d entries, want %d", start, round, got, n)
			}
			for range n {
				if got := *c.next(); got != want {
					t.Fatalf("start %d: read %d, want %d", start, got, want)
				}
				want++
			}
			if p.used() != n {
				t.Fatalf("start %d: used %d before release, want %d", start, p.used(), n)
			}
			c.release()
			if p.used() != 0 {
				t.Fatalf("start %d: used %d after release", start, p.used())
			}
		}
	}
}

func TestRingFull(t *testing.T) {
	m := fakeRing[uint64](4, nearWrap)
	p := newProducer(m)
	for i := range uint64(4) {
		p.put(i)
	}
	if p.room(1) != 0 {
		t.Errorf("room %d in a full ring", p.room(1))
	}
}

// An invalid producer index of a broken or hostile kernel must not make us read past the ring.
func TestRingLyingIndex(t *testing.T) {
	m := fakeRing[uint64](4, 0)
	c := newConsumer(m)
	*m.prod = 1 << 30
	if n := c.avail(1); n != 4 {
		t.Errorf("%d entries available in a ring of 4", n)
	}
}

// Two threads share a ring without a lock. The race detector and the values check the memory order.
func TestRingConcurrent(t *testing.T) {
	const n = 200_000
	m := fakeRing[uint64](64, nearWrap)
	var wg sync.WaitGroup
	wg.Go(func() {
		p := newProducer(m)
		for i := uint64(0); i < n; {
			room := p.room(1)
			for ; room > 0 && i < n; room-- {
				p.put(i)
				i++
			}
			p.publish()
		}
	})
	c := newConsumer(m)
	for want := uint64(0); want < n; {
		avail := c.avail(1)
		for range avail {
			if got := *c.next(); got != want {
				t.Fatalf("read %d, want %d", got, want)
			}
			want++
		}
		c.release()
	}
	wg.Wait()
}
