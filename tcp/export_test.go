package tcp

import (
	"reflect"
	"slices"

	"xwarp/tcp/loss"
	"xwarp/tcp/tick"
)

// Plateau returns the MTU that follows from a "packet too big" message about n bytes that names none.
func Plateau(n int) int { return plateau(n) }

// InputInFull is Input without its first step.
func (c *Conn) InputInFull(s *Segment, now tick.Time) *Offer {
	c.beginInput()
	o := &c.offered
	o.N = 0
	c.inputSlowPath(s, now, o)
	return o
}

// TakesFastPath reports whether s takes Input's first step.
func (c *Conn) TakesFastPath(s *Segment, now tick.Time) bool {
	x := *c
	x.outOfOrder.ranges, x.tx = slices.Clone(c.outOfOrder.ranges), loss.Sender{}
	x.tx.Init(&c.cfg.Loss, c.una, now)
	return x.inputFastPath(s, now, new(Offer))
}

// Plain returns o without its fields about runs.
func (o Out) Plain() Out {
	o.Run, o.of, o.at = RunNone, nil, 0
	return o
}

// Same reports whether a and b are in the same state, but for runs and for what Input keeps until the
// next one.
func Same(a, b *Conn) bool {
	x, y := *a, *b
	x.inRun, y.inRun = false, false
	x.cur, y.cur = arrival{}, arrival{}
	x.offered, y.offered = Offer{}, Offer{}
	return reflect.DeepEqual(&x, &y)
}

// HeldSteps counts comparisons and moves in the set of bytes beyond a gap.
func (c *Conn) HeldSteps() uint64 { return c.outOfOrder.steps }

// Take is what challenge asks.
func (b *Budget) Take(now tick.Time) bool { return b.allow(now) }

// SipHash is the hash under ISNs and cookies.
func SipHash(key *[16]byte, p []byte) uint64 { return sipHash(key, p) }

// Defaults is what Init and a Listener do to a Config.
func (c *Config) Defaults() { c.defaults() }
