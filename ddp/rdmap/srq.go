package rdmap

import "xwarp/ddp"

// SRQConfig describes a shared receive queue.
type SRQConfig struct {
	Table  *ddp.Table
	PD     *ddp.PD
	Depth  int // receives that may be posted, 1..MaxDepth
	MaxSGE int // pieces per receive, 1..MaxSGE
	// Refill is called if a message finds no receive: it may post some that wait elsewhere. Nil means that there are no
	// others.
	Refill func(*SRQ)
}

// SRQ is a receive queue that several queue pairs of one worker and domain share. Messages take receives in the order
// in which they begin to arrive. A receive that a queue pair has taken completes or is flushed there.
type SRQ struct {
	cfg   SRQConfig
	users int

	wqes []recvWQE
	free []int32 // stack of unused entries
	fifo []int32 // ring of posted entries
	head uint32
	tail uint32
	mask uint32
}

// NewSRQ returns an empty queue. It fails with ErrConfig.
func NewSRQ(cfg SRQConfig) (*SRQ, error) {
	if cfg.Table == nil || cfg.PD == nil || cfg.Depth < 1 || cfg.Depth > MaxDepth ||
		cfg.MaxSGE < 1 || cfg.MaxSGE > MaxSGE {
		return nil, ErrConfig
	}
	n := ringSize(cfg.Depth)
	s := &SRQ{cfg: cfg, wqes: makeRecvWQEs(cfg.Depth, cfg.MaxSGE), fifo: make([]int32, n),
		mask: uint32(n - 1)}
	for i := cfg.Depth - 1; i >= 0; i-- {
		s.free = append(s.free, int32(i))
	}
	return s, nil
}

// PostRecv queues a receive. It fails with ErrFull or ErrSGE. Memory that is not registered, or that is limited to one
// stream, is detected when a message arrives with a byte for it.
func (s *SRQ) PostRecv(wr *RecvWR) error {
	if len(wr.SGL) > s.cfg.MaxSGE {
		return ErrSGE
	}
	if len(s.free) == 0 {
		return ErrFull
	}
	i := s.free[len(s.free)-1]
	s.wqes[i].load(s.cfg.Table, s.cfg.PD, 0, wr)
	s.free = s.free[:len(s.free)-1]
	s.fifo[s.tail&s.mask] = i
	s.tail++
	return nil
}

// Room returns how many receives may be posted now.
func (s *SRQ) Room() int { return len(s.free) }

// Len returns the number of posted receives that no message has taken.
func (s *SRQ) Len() int { return int(s.tail - s.head) }

// Destroy releases the posted receives without completions. It fails with ddp.ErrBusy while queue pairs use s.
func (s *SRQ) Destroy() error {
	if s.users > 0 {
		return ddp.ErrBusy
	}
	for s.head != s.tail {
		i := s.fifo[s.head&s.mask]
		s.head++
		s.wqes[i].recycle()
		s.free = append(s.free, i)
	}
	return nil
}

// takeOldest removes the oldest receive and returns its entry, or -1 if there is none.
func (s *SRQ) takeOldest() int32 {
	if s.head == s.tail && s.cfg.Refill != nil {
		s.cfg.Refill(s)
	}
	if s.head == s.tail {
		return -1
	}
	i := s.fifo[s.head&s.mask]
	s.head++
	return i
}

// freeEntry frees an entry whose receive is complete.
func (s *SRQ) freeEntry(i int32) { s.free = append(s.free, i) }
