package stack

import (
	"xwarp/engine/tally"
	"xwarp/tcp"
	"xwarp/tcp/loss"
)

// TCPCounters are the counters of connections.
type TCPCounters struct {
	tcp.Counters
	Loss loss.Counters
}

// Count updates Totals with a connection of the stack. Ended connections are already included.
func (s *Stack) Count(e *Endpoint) {
	if s.conns[e.tuple] == e {
		s.count(e)
	}
}

func (s *Stack) count(e *Endpoint) {
	s.totals.Add(&e.counted, &TCPCounters{e.conn.Counters(), e.conn.LossCounters()})
}

// Totals returns the sums of all connections' counters: of ended ones, and of others as of Count.
func (s *Stack) Totals() TCPCounters { return s.totals.Total() }

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
