package transfer

import (
	"sync/atomic"

	"xwarp/engine/verbs"
)

// Stats are the counters of servers.
type Stats struct {
	Puts     atomic.Uint64 // files that clients stored
	PutBytes atomic.Uint64 // bytes of the stored files
	Gets     atomic.Uint64 // files that clients fetched
	GetBytes atomic.Uint64 // bytes of the fetched files
	Failed   atomic.Uint64 // requests that were refused or interrupted
	Rejected atomic.Uint64 // rejected connections
}

// countMoved counts the files that a client stored or fetched, and their bytes.
func (n *Stats) countMoved(wrote bool, files, byteCount uint64) {
	if wrote {
		n.Puts.Add(files)
		n.PutBytes.Add(byteCount)
	} else {
		n.Gets.Add(files)
		n.GetBytes.Add(byteCount)
	}
}

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
