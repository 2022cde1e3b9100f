package export

import (
	"sync"

	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/counters"
)

// pastCounts are the counters of closed exports, by name.
type pastCounts struct {
	mu sync.Mutex
	of map[string]counts
}

type counts struct {
	rejected, flushes uint64
	transfers         counters.Values
}

// remember adds the counters of an export that is stopped to those of closed exports.
func (s *Set) remember(e *export) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := e.counts()
	e.counted = true
	c := &s.pastCounts
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = map[string]counts{}
	}
	n.add(c.of[e.cfg.Name])
	c.of[e.cfg.Name] = n
}

func (n *counts) add(old counts) {
	control.AddCounters(&n.transfers, old.transfers)
	n.rejected += old.rejected
	n.flushes += old.flushes
}

// counts returns the export's own counters, zeros after remember. It must be called with mu held.
func (e *export) counts() (n counts) {
	if e.counted {
		return n
	}
	n.rejected, n.flushes = e.rejected.Load(), e.flushes.Load()
	if e.srv != nil {
		done := e.srv.Stats()
		n.rejected, n.transfers = done.Rejected, control.Counters(&done)
	}
	return n
}

// totals returns the counters of all exports that have had the name. It must be called with mu held.
func (e *export) totals() counts {
	n := e.counts()
	c := &e.set.pastCounts
	c.mu.Lock()
	defer c.mu.Unlock()
	n.add(c.of[e.cfg.Name])
	return n
}
