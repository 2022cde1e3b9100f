package tcp

import "xwarp/tcp/tick"

// HeldSteps counts comparisons and moves in the set of octets beyond a gap.
func (c *Conn) HeldSteps() uint64 { return c.held.steps }

// Take is what challenge asks.
func (b *Budget) Take(now tick.Time) bool { return b.take(now) }

// SipHash is the hash under ISNs and cookies.
func SipHash(key *[16]byte, p []byte) uint64 { return sipHash(key, p) }
