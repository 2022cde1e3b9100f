package session

import (
	"fmt"
	"runtime/debug"
	"sync/atomic"

	"xwarp/engine/daemon/control"
	"xwarp/engine/guard"
	"xwarp/engine/verbs"
)

// cqRing is a ring of a completion queue: the one in use, or the next one, to which the queue switches when the program
// has touched its pages.
type cqRing struct {
	geometry control.Geometry
	mem      *control.Memory
	ring     *control.Producer
}

func (s *Session) resizeCQ(a *control.ResizeCQArgs) (any, error) {
	c, err := find[*cq](s, a.Handle)
	if err != nil {
		return nil, err
	}
	if a.Depth == 0 {
		return nil, s.useNextRing(c)
	}
	s.closeRing(s.setNextRing(c, nil)) // of an unfinished resize
	if a.Depth < 1 || a.Depth > control.MaxCQDepth {
		return nil, fmt.Errorf("%w: ibv_resize_cq to %d, at most %d", control.ErrFrame, a.Depth,
			control.MaxCQDepth)
	}
	g := control.NewGeometry(0, a.Depth, control.CompletionSlot)
	n, err := charge(s, ringCost(g), func() (*cqRing, error) { return s.newRing(g) })
	if err != nil {
		return nil, err
	}
	fd := n.mem.TakeFd()
	s.setNextRing(c, n)
	return withFiles{control.ResizeCQResult{Ring: n.geometry}, []int{fd}}, nil
}

// setNextRing replaces the next ring of c by n, and returns the previous one. Both may be nil.
func (s *Session) setNextRing(c *cq, n *cqRing) (before *cqRing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, c.next = c.next, n
	return before
}

// newRing creates the ring of a completion queue.
func (s *Session) newRing(g control.Geometry) (*cqRing, error) {
	mem, err := s.mapper.NewMemory(s, "xwarp-cq", g.Len())
	if err != nil {
		return nil, err
	}
	ring, err := control.NewProducer(mem.Mem, g)
	if err != nil {
		mem.Close()
		return nil, err
	}
	return &cqRing{g, mem, ring}, nil
}

// closeRing frees an unused ring. n may be nil.
func (s *Session) closeRing(n *cqRing) {
	if n != nil {
		n.mem.Close()
		s.account.Release(ringCost(n.geometry))
	}
}

// useNextRing makes workers write completions into the next ring. Completions that the program has not polled stay in
// the old ring.
func (s *Session) useNextRing(c *cq) error {
	n := s.setNextRing(c, nil)
	if n == nil {
		return control.Errorf(control.CodeInvalid, "no resize is in progress")
	}
	before, err := c.replace(n)
	if err != nil {
		s.closeRing(n)
		return err
	}
	before.Close()
	s.mu.Lock()
	gone := c.geometry
	c.geometry = n.geometry
	s.mu.Unlock()
	s.account.Release(ringCost(gone))
	return nil
}

// replace makes c use the ring of n. It returns the memory of the old ring, which is not accessed any more.
func (c *cq) replace(n *cqRing) (before *control.Memory, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.mem
	defer guard.Recover(func(v any) {
		c.s.failLostPage(at, v)
		c.closed, err = true, verbs.ErrClosed
	})
	if c.closed {
		return nil, verbs.ErrClosed
	}
	armed := atomic.SwapUint32(c.ring.Armed(), 0)
	state := atomic.LoadUint32(c.ring.State())
	at = n.mem // its pages may be missing
	atomic.StoreUint32(n.ring.State(), state)
	atomic.StoreUint32(n.ring.Armed(), armed)
	before, c.mem, c.ring = c.mem, n.mem, n.ring
	return before, nil
}
