package stack

import (
	"xwarp/engine/tally"
	"xwarp/tcp"
)

// Count updates the stack's Totals with e. An ended connection is already included.
func (e *Endpoint) Count() {
	if s := e.stack; s.conns[e.tuple] == e {
		s.count(e)
	}
}

func (s *Stack) count(e *Endpoint) {
	n := e.conn.AllCounters()
	s.totals.Add(&e.counted, &n)
}

// Totals returns the sums of all connections' counters. Those of a connection that has not ended are as of its last
// Count.
func (s *Stack) Totals() tcp.AllCounters { return s.totals.Total() }

// Listened returns the sums of all listeners' counters, including closed ones.
func (s *Stack) Listened() tcp.ListenCounters {
	n := s.listened
	for _, l := range s.listening {
		n = tally.Join(n, l.counters())
	}
	return n
}

func (l *Listener) counters() tcp.ListenCounters {
	return tally.Join(l.both[0].Counters(), l.both[1].Counters())
}
