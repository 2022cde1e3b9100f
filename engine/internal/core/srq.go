package core

import (
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"xwarp/ddp/rdmap"
	"xwarp/engine/verbs"
)

// SRQ is verbs.SRQ of the engine. Consumers post receives to one queue of all workers. A worker moves a receive into
// its own rdmap.SRQ, with the regions of its own table, when a message of one of its queue pairs begins to arrive. So
// no worker keeps receives that another worker needs.
type SRQ struct {
	cfg     verbs.SRQConfig // with the defaults filled in
	pd      *PD
	slots   []rdmap.RecvWR
	free    *fifo[int32] // indices of the slots without a receive
	posted  *fifo[int32]
	limit   atomic.Int32
	users   atomic.Int32 // number of queue pairs that use the SRQ
	closed  atomic.Bool
	onEmpty func() // see OnEmpty; nil: no call
	starved starvedQPs
	locals  []*rdmap.SRQ // one per worker, which makes it when a queue pair needs it
}

// CreateSRQ implements verbs.Device.
func (d *Device) CreateSRQ(cfg verbs.SRQConfig) (verbs.SRQ, error) {
	s, err := d.NewSRQ(cfg)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// NewSRQ is CreateSRQ for callers that need a *SRQ.
func (d *Device) NewSRQ(cfg verbs.SRQConfig) (*SRQ, error) {
	s, err := d.createSRQ(cfg.Complete())
	return s, verbs.Wrap("ibv_create_srq", err)
}

func (d *Device) createSRQ(cfg verbs.SRQConfig) (*SRQ, error) {
	pd, _ := cfg.PD.(*PD)
	if pd == nil || pd.dev != d {
		return nil, verbs.ErrForeign
	}
	if cfg.Depth < 1 || cfg.Depth > rdmap.MaxDepth || cfg.MaxSGE < 1 || cfg.MaxSGE > rdmap.MaxSGE {
		return nil, fmt.Errorf("%w: %d receives of %d SGEs, at most %d of %d", verbs.ErrInvalid,
			cfg.Depth, cfg.MaxSGE, rdmap.MaxDepth, rdmap.MaxSGE)
	}
	s := &SRQ{cfg: cfg, pd: pd, slots: make([]rdmap.RecvWR, cfg.Depth),
		locals: make([]*rdmap.SRQ, len(d.shards))}
	s.free, _ = newFIFO[int32](cfg.Depth) // the depth is valid
	s.posted, _ = newFIFO[int32](cfg.Depth)
	room := make([]verbs.SGE, cfg.Depth*cfg.MaxSGE)
	for i := range s.slots {
		from, to := i*cfg.MaxSGE, (i+1)*cfg.MaxSGE
		s.slots[i].SGL = room[from:from:to]
		s.free.Push(new(int32(i)))
	}
	pd.srqs.Add(1)
	return s, nil
}

// SRQFootprint returns the maximum number of bytes that this process allocates for a shared receive queue.
func (d *Device) SRQFootprint(cfg *verbs.SRQConfig) int {
	core := rdmap.SRQConfig{Depth: cfg.Depth, MaxSGE: cfg.MaxSGE}
	slot := int(unsafe.Sizeof(rdmap.RecvWR{})) + cfg.MaxSGE*int(unsafe.Sizeof(verbs.SGE{}))
	fifo := slots(max(cfg.Depth, 2)) * int(unsafe.Sizeof(fifoSlot[int32]{}))
	return int(unsafe.Sizeof(SRQ{})) + rdmap.Allocated(cfg.Depth*slot) + 2*rdmap.Allocated(fifo) +
		len(d.shards)*core.Footprint()
}

// PostRecv implements verbs.SRQ.
func (s *SRQ) PostRecv(wr *verbs.RecvWR) error {
	if len(wr.SGL) > s.cfg.MaxSGE {
		return fmt.Errorf("%w: %d SGEs; the queue allows %d", verbs.ErrInvalid, len(wr.SGL),
			s.cfg.MaxSGE)
	}
	if s.closed.Load() || s.pd.dev.closeDone.Load() {
		return verbs.ErrClosed
	}
	var i int32
	if !s.free.Pop(&i) {
		return verbs.ErrQueueFull
	}
	copyRecv(&s.slots[i], wr)
	s.posted.Push(&i)
	s.starved.ring()
	return nil
}

// starvedQPs are the queue pairs with a message that waits for a receive of a shared queue.
type starvedQPs struct {
	any  atomic.Bool
	mu   sync.Mutex
	list map[*QP]struct{}
}

// addStarved makes the next PostRecv, or the next completion of a receive, ring the doorbell of q. If a receive is
// posted already and fits the worker's queue, it rings at once. It runs on the worker of q.
func (s *SRQ) addStarved(q *QP) {
	s.starved.mu.Lock()
	if s.starved.list == nil {
		s.starved.list = map[*QP]struct{}{}
	}
	s.starved.list[q] = struct{}{}
	s.starved.any.Store(true)
	s.starved.mu.Unlock()
	local := s.locals[q.shard.Load().index]
	if s.posted.Len() > 0 && local.Room() > 0 { // PostRecv may have run before q was in the list
		s.starved.ring()
	}
}

// ring makes the queue pairs check for a receive.
func (q *starvedQPs) ring() {
	if !q.any.Load() {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.any.Store(false)
	for qp := range q.list {
		if s := qp.shard.Load(); s != nil {
			s.Ring(&qp.doorbell)
		}
	}
	clear(q.list)
}

// OnEmpty sets f, which a worker calls before a message that finds no posted receive ends its connection or waits. It
// is also called before Limit. f may post receives and must not block. OnEmpty must be called before a queue pair uses
// s.
func (s *SRQ) OnEmpty(f func()) { s.onEmpty = f }

// Len implements verbs.SRQ.
func (s *SRQ) Len() int { return s.posted.Len() }

// Limit implements verbs.SRQ.
func (s *SRQ) Limit() int { return int(s.limit.Load()) }

// Arm implements verbs.SRQ.
func (s *SRQ) Arm(limit int) error {
	if limit < 0 || limit > s.cfg.Depth {
		return fmt.Errorf("%w: SRQ limit %d, want 0 to %d", verbs.ErrInvalid, limit, s.cfg.Depth)
	}
	s.limit.Store(int32(limit))
	s.checkLimit()
	return nil
}

// checkLimit calls the configured Limit once fewer receives are posted than the armed limit.
func (s *SRQ) checkLimit() {
	limit := s.limit.Load()
	if limit == 0 || s.posted.Len() >= int(limit) {
		return
	}
	if s.onEmpty != nil {
		s.onEmpty()
	}
	if s.posted.Len() < int(limit) && s.limit.CompareAndSwap(limit, 0) && s.cfg.Limit != nil {
		s.cfg.Limit()
	}
}

// localFor returns the queue of shard's worker, and makes it when there is none. It runs on that worker.
func (s *SRQ) localFor(shard *Shard) (q *rdmap.SRQ, err error) {
	if q = s.locals[shard.index]; q == nil {
		q, err = rdmap.NewSRQ(rdmap.SRQConfig{Table: shard.table, PD: s.pd.pds[shard.index],
			Depth: s.cfg.Depth, MaxSGE: s.cfg.MaxSGE, Refill: s.refill})
		s.locals[shard.index] = q
	}
	return q, err
}

// refill is rdmap.SRQConfig.Refill: it moves the oldest posted receive into a worker's queue.
func (s *SRQ) refill(to *rdmap.SRQ) {
	if to.Room() == 0 { // incomplete messages hold all places
		return
	}
	var i int32
	got := s.posted.Pop(&i)
	if !got && s.onEmpty != nil {
		s.onEmpty()
		got = s.posted.Pop(&i)
	}
	if got {
		to.PostRecv(&s.slots[i]) // does not fail: the receive fits, and there is room
		s.free.Push(&i)
		s.checkLimit()
	}
}

// Close implements verbs.SRQ.
func (s *SRQ) Close() error {
	if s.users.Load() > 0 {
		return verbs.Wrap("ibv_destroy_srq", verbs.ErrBusy)
	}
	if !s.closed.Swap(true) {
		s.pd.srqs.Add(-1)
	}
	return nil
}

// removeUser is called when a queue pair no longer uses s; s may be nil.
func (s *SRQ) removeUser() {
	if s != nil {
		s.starved.ring()
		s.users.Add(-1)
	}
}
