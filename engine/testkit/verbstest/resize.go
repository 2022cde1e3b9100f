package verbstest

import (
	"net/netip"
	"syscall"

	"xwarp/engine/verbs"
)

// resize grows and shrinks a completion queue that holds completions: they are kept, in order.
func (c *contract) resize() {
	const window, rounds = 8, 40
	a, b := New(c, c.a, 4096), New(c, c.b, 4096)
	Connect(c, a, b, netip.AddrPortFrom(c.at.Addr(), 0))
	for _, depth := range []int{-1, 0, verbs.MaxCQDepth + 1} {
		c.is("Resize", b.CQ.Resize(depth), syscall.EINVAL)
	}
	id := uint64(0)
	for round := range rounds {
		for i := range uint64(window) {
			if err := b.QP.PostRecv(&verbs.RecvWR{ID: id + i}); err != nil {
				c.Fatal(err)
			}
		}
		if _, err := b.QP.Info(); err != nil { // after this call the receives are posted
			c.Fatal(err)
		}
		for i := range window {
			if i == window/2 {
				if err := b.CQ.Resize(window << (round % 5)); err != nil {
					c.Fatal(err)
				}
			}
			a.Post(verbs.SendWR{Op: verbs.WRSend})
			a.Wait()
		}
		for range window {
			if v := b.Wait(); v.ID != id {
				c.Fatalf("round %d: completion %d instead of %d", round, v.ID, id)
			}
			id++
		}
		if n, err := b.CQ.Poll(make([]verbs.Completion, 1)); n != 0 || err != nil {
			c.Fatalf("round %d: %d completions too many, %v", round, n, err)
		}
	}
	if err := b.QP.Close(); err != nil {
		c.Error(err)
	}
	if err := b.CQ.Close(); err != nil {
		c.Error(err)
	}
	c.is("Resize after Close", b.CQ.Resize(8), verbs.ErrClosed)
}
