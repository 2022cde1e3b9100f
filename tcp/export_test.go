package tcp

import (
	"reflect"
	"slices"

	"xwarp/tcp/loss"
	"xwarp/tcp/tick"
)

// Plateau exports plateau: the path MTU to assume after a "packet too big" message without MTU that quotes n bytes.
func Plateau(n int) int { return plateau(n) }

// InputInFull is Input without the fast path.
func (c *Conn) InputInFull(s *Segment, now tick.Time) *Offer {
	c.beginInput()
	o := &c.offered
	o.N = 0
	c.inputSlowPath(s, now, o)
	return o
}

// TakesFastPath reports whether Input handles s on the fast path. It does not change c.
func (c *Conn) TakesFastPath(s *Segment, now tick.Time) bool {
	x := *c
	x.outOfOrder.ranges, x.tx = slices.Clone(c.outOfOrder.ranges), loss.Sender{}
	x.tx.Init(&c.cfg.Loss, c.una, now)
	return x.inputFastPath(s, now, new(Offer))
}

// Plain returns o without the fields that describe runs.
func (o Out) Plain() Out {
	o.Run, o.of, o.at = RunNone, nil, 0
	return o
}

// Same reports whether a and b are equal, except for the state of runs and of the last Input.
func Same(a, b *Conn) bool {
	x, y := *a, *b
	x.inRun, y.inRun = false, false
	x.cur, y.cur = arrival{}, arrival{}
	x.offered, y.offered = Offer{}, Offer{}
	return reflect.DeepEqual(&x, &y)
}

// HeldSteps returns the number of comparisons and moved ranges in the set of bytes beyond a hole.
func (c *Conn) HeldSteps() uint64 { return c.outOfOrder.steps }

// Take exports allow: it takes one challenge ACK from the budget, and returns false if none is left.
func (b *ChallengeBudget) Take(now tick.Time) bool { return b.allow(now) }

// SipHash exports sipHash, the hash of ISNs and cookies.
func SipHash(key *[16]byte, p []byte) uint64 { return sipHash(key, p) }

// Defaults exports defaults, which Conn.Init and Listener.Init call.
func (c *Config) Defaults() { c.defaults() }
