package tcp

import (
	"reflect"

	"xwarp/tcp/tick"
)

// Same reports whether a and b are in the same state, but for whether PollNext may go on and for what Input keeps for
// Finish.
func Same(a, b *Conn) bool {
	x, y := *a, *b
	x.run, y.run = false, false
	x.now, y.now = current{}, current{}
	return reflect.DeepEqual(&x, &y)
}

// HeldSteps counts comparisons and moves in the set of octets beyond a gap.
func (c *Conn) HeldSteps() uint64 { return c.held.steps }

// Take is what challenge asks.
func (b *Budget) Take(now tick.Time) bool { return b.take(now) }

// SipHash is the hash under ISNs and cookies.
func SipHash(key *[16]byte, p []byte) uint64 { return sipHash(key, p) }

// Defaults is what Init and a Listener do to a Config.
func (c *Config) Defaults() { c.defaults() }
