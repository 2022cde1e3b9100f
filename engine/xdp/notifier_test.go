package xdp

import "testing"

// TestNotifierKeepsOrder: notifications are delivered in order, none is lost, and stop delivers those that remain.
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
	for n := range all / 2 { // they must be delivered although no other notification follows
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
