package transfer

import (
	"sync/atomic"

	"xwarp/engine/verbs"
)

// Stats are what a server did so far.
type Stats struct {
	Puts      uint64 // that became the region's content
	PutOctets uint64 // of these contents
	Gets      uint64 // that the client said to have whole
	GetOctets uint64 // of these
	Failed    uint64 // puts and gets that were refused or broke off
	Rejected  uint64 // connections
}

// counts are Stats that go on.
type counts struct{ puts, putOctets, gets, getOctets, failed, rejected atomic.Uint64 }

// Stats returns the counters of the moment.
func (s *Server) Stats() Stats {
	c := &s.counts
	return Stats{
		Puts: c.puts.Load(), PutOctets: c.putOctets.Load(), Gets: c.gets.Load(),
		GetOctets: c.getOctets.Load(),
		Failed:    c.failed.Load(), Rejected: c.rejected.Load(),
	}
}

// QPs returns the queue pairs of the clients that are there. They may close at any time.
func (s *Server) QPs() []verbs.QP {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]verbs.QP, 0, len(s.qps))
	for q := range s.qps {
		list = append(list, q)
	}
	return list
}

func (s *Server) came(q verbs.QP) {
	s.mu.Lock()
	s.qps[q] = struct{}{}
	s.mu.Unlock()
}

func (s *Server) left(q verbs.QP) {
	s.mu.Lock()
	delete(s.qps, q)
	s.mu.Unlock()
}
