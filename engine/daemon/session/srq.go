package session

import (
	"fmt"

	"xwarp/engine/daemon/control"
	"xwarp/engine/guard"
	"xwarp/engine/internal/core"
	"xwarp/engine/verbs"
	"xwarp/engine/wake"
)

// srq is a shared receive queue of a session: the engine's queue, and the ring in which the program posts.
type srq struct {
	object
	s            *Session
	eng          *core.SRQ
	pd           *pd
	depth        int
	users        int       // queue pairs; guarded by Session.mu
	limitReached wake.Flag // set when fewer receives are posted than the armed limit
	destroyed    chan struct{}

	posterState
	recvRing
}

func (*srq) String() string { return "shared receive queue" }

func (q *srq) numbers() (kind, object string) {
	return "srq", fmt.Sprintf("srqn %d max_wr %d", q.handle, q.depth)
}

func (q *srq) busy() error {
	return busyIf(q.users > 0, "ibv_destroy_srq: queue pairs use the shared receive queue")
}

// postAll implements poster. It moves receives, because a shared receive queue has nothing else.
func (q *srq) postAll() (worked, stalled bool, err error) {
	worked, _, stalled, err = q.postRecvs()
	return worked, stalled, err
}

func (s *Session) createSRQ(a *control.CreateSRQArgs) (any, error) {
	c := verbs.SRQConfig{Depth: a.Depth, MaxSGE: a.MaxSGE}.Complete()
	if c.Depth < 1 || c.Depth > control.MaxDepth {
		return nil, fmt.Errorf("%w: ibv_create_srq: depth = %d, want 1 to %d",
			control.ErrFrame, c.Depth, control.MaxDepth)
	}
	p, err := find[*pd](s, a.PD)
	if err != nil {
		return nil, err
	}
	g := control.NewGeometry(0, c.Depth, control.RecvSlot(c.MaxSGE))
	q := &srq{object: object{cost: s.srqCost(&c, g)}, s: s, pd: p, depth: c.Depth,
		limitReached: wake.New(), destroyed: make(chan struct{})}
	if _, err := charge(s, q.cost, func() (any, error) { return nil, q.create(c, g) }); err != nil {
		return nil, err
	}
	return withFiles{control.CreateSRQResult{Handle: q.handle, Recv: g, Bell: q.bell,
		MaxSGE: c.MaxSGE}, []int{q.mem.TakeFd()}}, nil
}

// create creates the ring and the engine's queue, and adds q to the table.
func (q *srq) create(c verbs.SRQConfig, g control.Geometry) (err error) {
	s := q.s
	c.PD, c.Limit = q.pd.pd, q.limitReached.Set // on workers, which must not write to sockets of programs
	if q.eng, err = s.dev.Core.NewSRQ(c); err != nil {
		return err
	}
	if q.mem, err = s.mapper.NewMemory(s, "xwarp-srq", int(g.After())); err != nil {
		q.eng.Close()
		return err
	}
	q.to, q.sge, q.buf = q.eng, c.MaxSGE, make([]byte, g.SlotSize)
	if q.rq, err = control.NewConsumer(q.mem.Mem, g); err == nil {
		q.eng.OnEmpty(func() { s.refill(q) })
		err = s.addPoster(q)
	}
	if err != nil {
		q.eng.Close()
		q.mem.Close()
		return err
	}
	s.mu.Lock()
	s.addObject(q)
	q.pd.srqs++
	s.mu.Unlock()
	go q.watch()
	return nil
}

// watch sends an event each time that the number of posted receives falls below an armed limit.
func (q *srq) watch() {
	defer guard.Recover(q.s.onDefect("watching a shared receive queue"))
	for {
		select {
		case <-q.limitReached:
			q.s.sendEvent(&control.Event{Event: control.EventSRQLimit, SRQ: q.handle})
		case <-q.destroyed:
			return
		case <-q.s.ctx.Done():
			return
		}
	}
}

func (s *Session) modifySRQ(a *control.ModifySRQArgs) error {
	q, err := find[*srq](s, a.Handle)
	if err != nil {
		return err
	}
	s.drain(q) // earlier receives count
	return q.eng.Arm(a.Limit)
}

func (s *Session) querySRQ(q *srq) (any, error) {
	s.drain(q)
	return control.QuerySRQResult{Limit: q.eng.Limit(), Posted: q.eng.Len()}, nil
}

// closeSRQ closes q, which must have been removed from the table, and which no queue pair may use any more.
func (s *Session) closeSRQ(q *srq) error {
	close(q.destroyed)
	s.removePoster(q)
	err := q.eng.Close()
	q.mem.Close()
	s.mu.Lock()
	q.pd.srqs--
	s.mu.Unlock()
	s.account.Release(q.cost)
	return err
}
