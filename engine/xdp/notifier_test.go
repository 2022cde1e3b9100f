package xdp

import "testing"

// TestNotifierKeepsOrder: the notifications of a busy thread are delivered in order, none is lost between turns, and
// stop waits for the rest.
func TestNotifierKeepsOrder(t *testing.T) {
	var c notifier
	if err := c.start(); err != nil {
		t.Fatal(err)
	}
	const all = 10000
	delivered := make(chan int, all+1)
	notify := func(n int) { c.pending = append(c.pending, func() { delivered <- n }) }
	for n := range all / 2 {
		notify(n)
		if n%3 == 0 {
			c.flush()
		}
	}
	for !c.flush() {
	}
	for n := range all / 2 { // without later notifications
		if got := <-delivered; got != n {
			t.Fatalf("delivered %d, want %d", got, n)
		}
	}
	for n := range all / 2 {
		notify(all/2 + n)
		c.flush()
	}
	notify(all)
	c.stop()
	for n := all / 2; n <= all; n++ {
		if got := <-delivered; got != n {
			t.Fatalf("delivered %d, want %d", got, n)
		}
	}
}
