package transfer

import "xwarp/engine/verbs"

// Stats are the counters of a server.
type Stats struct {
	Puts     uint64 // files that clients stored
	PutBytes uint64 // bytes of these
	Gets     uint64 // files that clients fetched
	GetBytes uint64 // bytes of these
	Failed   uint64 // requests that were refused or interrupted
	Rejected uint64 // rejected connections
}

// Stats returns the current counters.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// countTransfer changes the counters.
func (s *Server) countTransfer(f func(n *Stats)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.stats)
}

// countMoved counts the files that a client stored or fetched, and their bytes.
func (s *Server) countMoved(wrote bool, files, byteCount uint64) {
	s.countTransfer(func(n *Stats) {
		if wrote {
			n.Puts += files
			n.PutBytes += byteCount
		} else {
			n.Gets += files
			n.GetBytes += byteCount
		}
	})
}

func (s *Server) countFailed() { s.countTransfer(func(n *Stats) { n.Failed++ }) }

// QPs returns the queue pairs of the connected clients. They may close at any time.
func (s *Server) QPs() (list []verbs.QP) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.qps {
		if q != nil {
			list = append(list, q)
		}
	}
	return list
}
