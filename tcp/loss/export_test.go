package loss

import "xwarp/tcp/seq"

// Cwnd returns the congestion window in bytes.
func (s *Sender) Cwnd() int { return s.cc.Cwnd() }

// Ssthresh returns the slow start threshold in bytes, cc.Infinite before the first congestion.
func (s *Sender) Ssthresh() int { return s.cc.Ssthresh() }

// Nxt returns the sequence number of the next new segment.
func (s *Sender) Nxt() seq.Num { return s.nxt }
