package impair

import (
	"xwarp/tcp/ip"
	"xwarp/tcp/tick"
)

// Buf is one frame on its way. Pool.Get passes its ownership to the caller, Path.Push to the path, Path.Pop back to the
// caller, and Pool.Put to the pool.
type Buf struct {
	Data []byte // the frame from the Ethernet header on

	view   view
	arrive tick.Time // at Push
	depart tick.Time // from the bottleneck
	due    tick.Time // at the far end
	ahead  int       // frames that still have to pass this held one
	passed bool      // at least one did

	payload int // re-cutting: offset of the first byte not yet sent on
}

// Pool recycles buffers for frames of a bounded size. It is not for concurrent use.
type Pool struct {
	size int
	free []*Buf
}

// NewPool returns a pool of buffers for frames of up to size bytes, Ethernet header and VLAN tags included,
// and for the ICMP errors that a path makes.
func NewPool(size int) *Pool {
	return &Pool{size: max(size, FrameOverhead+ip.Len6+icmpHeader+maxQuote6)}
}

// Size returns the largest frame that a buffer holds.
func (p *Pool) Size() int { return p.size }

// Get returns a buffer of n bytes with unspecified contents; n is at most Size.
func (p *Pool) Get(n int) *Buf {
	var b *Buf
	if k := len(p.free); k > 0 {
		b = p.free[k-1]
		p.free = p.free[:k-1]
	} else {
		b = &Buf{Data: make([]byte, p.size)}
	}
	*b = Buf{Data: b.Data[:n]}
	return b
}

// Put takes a buffer back.
func (p *Pool) Put(b *Buf) {
	if len(p.free) < maxFreeBuffers {
		p.free = append(p.free, b)
	}
}

// copyOf returns a copy of b, its frame and its parsed headers.
func (p *Pool) copyOf(b *Buf) *Buf {
	c := p.Get(len(b.Data))
	copy(c.Data, b.Data)
	c.view, c.arrive = b.view, b.arrive
	return c
}
