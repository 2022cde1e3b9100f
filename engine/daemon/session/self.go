package session

import (
	"context"

	"xwarp/engine/budget"
	"xwarp/engine/daemon/control"
	"xwarp/engine/internal/core"
	"xwarp/engine/verbs"
)

// A queue pair that is connected to itself has two of the engine: the one that sends, and its twin, which receives and
// answers Reads and atomics. They are connected like those of two programs of this host, so that rights, order and
// errors are the same.

// makeTwin makes the twin of q, which d connects, and gives it the receives that the program has posted.
func (q *qp) makeTwin(d *direct, a *control.SetStateArgs) error {
	s, c := q.s, q.cfg
	c.SendDepth, c.MaxInline, c.IRD, c.ORD = 1, verbs.None, orNone(a.IRD), verbs.None
	cost := budget.Amounts{budget.QPs: 1, budget.Descriptors: 1,
		budget.DaemonMemory: budget.ObjectMemory + int64(s.dev.Core.Footprint(&c))}
	eng, err := charge(s, cost, func() (verbs.QP, error) { return s.dev.Core.CreateQP(c) })
	if err != nil {
		return err
	}
	q.twin, q.twinCost = eng.(*core.QP), cost
	usePrivate(q.twin, d, a)
	q.twin.SetOwner(s.account)
	q.twin.OnEmpty(func() { s.refill(q) })
	sender := q.q.(*core.QP)
	if err := q.twin.Allow(sender.Allowed()); err != nil {
		return err
	}
	s.pumpMu.Lock()
	defer s.pumpMu.Unlock()
	q.to = q.twin
	return sender.MoveReceives(q.twin)
}

// closeTwin ends the twin of q, if it has one.
func (q *qp) closeTwin() {
	if q.twin != nil {
		q.twin.Abort()
		q.twin.Close()
		q.s.account.Release(q.twinCost)
	}
}

// dialSelf is dial for a queue pair that is its own peer: its twin accepts.
func (d *direct) dialSelf(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	accepted := make(chan error, 1)
	go func() { accepted <- d.acceptAs(ctx, d.q.twin) }()
	err := d.dial(ctx)
	if err != nil {
		cancel()
	}
	if e := <-accepted; err == nil {
		err = e
	}
	return err
}
