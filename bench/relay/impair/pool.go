package impair

import (
	"xwarp/tcp/ip"
	"xwarp/tcp/tick"
)

// Buf is the buffer of one frame. Pool.Get and Path.Pop give its ownership to the caller, Path.Push gives it to the
// path, and Pool.Put to the pool.
type Buf struct {
	Data []byte // the frame from the Ethernet header on

	view   view
	arrive tick.Time // time of Push
	depart tick.Time // when the frame leaves the bottleneck
	due    tick.Time // when it arrives at the far end; of a frame held for reordering: when the hold ends
	ahead  int       // number of frames that must still pass this held frame
	passed bool      // at least one frame has passed it

	payload int // of a segment held for re-cutting: offset of the first byte that is not in a new segment yet
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

// Size returns the size in bytes of the largest frame that fits in a buffer.
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

// Put returns a buffer to the pool. The caller must not use it afterwards.
func (p *Pool) Put(b *Buf) {
	if len(p.free) < maxFreeBuffers {
		p.free = append(p.free, b)
	}
}

// copyOf returns a copy of b with its frame, parsed headers and arrival time.
func (p *Pool) copyOf(b *Buf) *Buf {
	c := p.Get(len(b.Data))
	copy(c.Data, b.Data)
	c.view, c.arrive = b.view, b.arrive
	return c
}
