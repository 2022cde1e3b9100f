package fair

import (
	"slices"
	"testing"
)

// TestOwnersTakeTurns: an owner with many items gets as many turns as an owner with one, and its own items share them
// equally.
func TestOwnersTakeTurns(t *testing.T) {
	var q Queue[string]
	var many, one, none Class[string]
	for _, v := range []string{"a", "b", "c", "d"} {
		q.Push(&many, v)
	}
	q.Push(&one, "x")
	var got []string
	for range 8 { // each item is queued again after its turn, as with endless work
		v, ok := q.Next()
		if !ok {
			t.Fatal("the queue is empty")
		}
		c := &many
		if v == "x" {
			c = &one
		}
		got = append(got, v)
		q.Push(c, v)
	}
	if want := []string{"a", "x", "b", "x", "c", "x", "d", "x"}; !slices.Equal(got, want) {
		t.Errorf("turns went to %v, want %v", got, want)
	}
	q.Push(&none, "new")
	waits := 0
	for v, _ := q.Next(); v != "new"; v, _ = q.Next() {
		waits++
	}
	if waits > 2 {
		t.Errorf("a new owner waited for %d items of 2 others", waits)
	}
	for q.Len() > 0 {
		q.Next()
	}
	if _, ok := q.Next(); ok || len(q.classes) != 0 {
		t.Errorf("an empty queue has an item, or %d owners", len(q.classes))
	}
}

// TestOrderOfOneOwner: with one owner a Queue is FIFO, and needs no memory for each item.
func TestOrderOfOneOwner(t *testing.T) {
	var q Queue[int]
	var c Class[int]
	in, out := 0, 0
	step := func() {
		for range 3 {
			q.Push(&c, in)
			in++
		}
		for range 2 + in%2*2 {
			if v, ok := q.Next(); ok {
				if v != out {
					t.Fatalf("%d came, want %d", v, out)
				}
				out++
			}
		}
	}
	for range 1000 {
		step()
	}
	seen := 0
	q.All(func(v int) {
		if v != out+seen {
			t.Fatalf("All returned %d, want %d", v, out+seen)
		}
		seen++
	})
	if seen != q.Len() || in-out != seen {
		t.Errorf("All returned %d items, %d wait, Len is %d", seen, in-out, q.Len())
	}
	if n := testing.AllocsPerRun(1000, step); n != 0 {
		t.Errorf("%v allocations for each step", n)
	}
}
