package core

import (
	"sync"
	"testing"

	"xwarp/engine/verbs"
)

func TestFIFOOrderAndBounds(t *testing.T) {
	r, err := newFIFO[int](5)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.slots) != 8 {
		t.Fatalf("Cap %d, want 8", len(r.slots))
	}
	next := 0
	for round := range 20 {
		for i := range 8 {
			v := round*8 + i
			if !r.Push(&v) {
				t.Fatalf("push %d refused below capacity", v)
			}
		}
		if v := -1; r.Push(&v) {
			t.Fatal("push into a full queue succeeded")
		}
		for range 8 {
			var v int
			if !r.Pop(&v) || v != next {
				t.Fatalf("pop: %d, want %d", v, next)
			}
			next++
		}
		if v := 0; r.Pop(&v) {
			t.Fatal("pop from an empty queue succeeded")
		}
	}
	for _, bad := range []int{0, -1, verbs.MaxCQDepth + 1} {
		if _, err := newFIFO[int](bad); err == nil {
			t.Errorf("depth %d accepted", bad)
		}
	}
}

func TestFIFOManyProducers(t *testing.T) {
	const producers, each = 4, 20000
	r, _ := newFIFO[[2]int](64)
	var wg sync.WaitGroup
	for p := range producers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := 0; i < each; {
				if v := [2]int{p, i}; r.Push(&v) {
					i++
				}
			}
		}()
	}
	var seen [producers]int
	for got := 0; got < producers*each; {
		var v [2]int
		if !r.Pop(&v) {
			continue
		}
		if v[1] != seen[v[0]] {
			t.Fatalf("producer %d: element %d, want %d", v[0], v[1], seen[v[0]])
		}
		seen[v[0]]++
		got++
	}
	wg.Wait()
}

func TestFIFOAllocs(t *testing.T) {
	r, _ := newFIFO[[4]uint64](16)
	var v [4]uint64
	if n := testing.AllocsPerRun(1000, func() { r.Push(&v); r.Pop(&v) }); n != 0 {
		t.Fatalf("%v allocations per push and pop", n)
	}
}

// TestSmallestRing: a ring of depth 1 accepts as many elements as it has slots, and no more. Pop returns them in order.
func TestSmallestRing(t *testing.T) {
	r, err := newFIFO[int](1)
	if err != nil {
		t.Fatal(err)
	}
	for i := range len(r.slots) {
		if !r.Push(&i) {
			t.Fatalf("push %d refused below capacity %d", i, len(r.slots))
		}
	}
	if v := -1; r.Push(&v) {
		t.Fatal("push into a full queue succeeded")
	}
	for i := range len(r.slots) {
		var v int
		if !r.Pop(&v) || v != i {
			t.Fatalf("pop: %d, want %d", v, i)
		}
	}
}
