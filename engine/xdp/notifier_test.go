package xdp

import "testing"

// TestCrier: what a thread tells that never pauses is told in order, nothing is lost between turns, and end waits for
// the rest.
func TestCrier(t *testing.T) {
	var c notifier
	if err := c.start(); err != nil {
		t.Fatal(err)
	}
	const all = 10000
	told := make(chan int, all+1)
	tell := func(n int) { c.pending = append(c.pending, func() { told <- n }) }
	for n := range all / 2 {
		tell(n)
		if n%3 == 0 {
			c.flush()
		}
	}
	for !c.flush() {
	}
	for n := range all / 2 { // each of them, although nothing comes behind it
		if got := <-told; got != n {
			t.Fatalf("told %d, want %d", got, n)
		}
	}
	for n := range all / 2 {
		tell(all/2 + n)
		c.flush()
	}
	tell(all)
	c.stop()
	for n := all / 2; n <= all; n++ {
		if got := <-told; got != n {
			t.Fatalf("told %d, want %d", got, n)
		}
	}
}
