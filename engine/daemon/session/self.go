package session

import (
	"context"
	"fmt"

	"xwarp/ddp/rdmap"
	"xwarp/engine/budget"
	"xwarp/engine/daemon/control"
	"xwarp/engine/guard"
	"xwarp/engine/internal/core"
	"xwarp/engine/verbs"
)

// A queue pair connected to itself has two queue pairs of the engine: the one that sends, and its twin, which receives
// and answers Reads and atomics. They are connected like those of two programs on this host, so that rights, order and
// errors are the same.

// makeTwin creates the twin of q, and moves the posted receives of q to it. d will connect the two. If makeTwin fails,
// q has no twin.
func (q *qp) makeTwin(d *roceConn, a *control.SetStateArgs) (err error) {
	s, c := q.s, q.cfg
	c.SendDepth, c.MaxInline, c.IRD, c.ORD = 1, verbs.None, orNone(a.IRD), verbs.None
	cost := budget.Amounts{budget.QPs: 1, budget.Descriptors: 1,
		budget.DaemonMemory: budget.ObjectMemory + int64(s.dev.Core.Footprint(&c))}
	eng, err := charge(s, cost, func() (*core.QP, error) { return s.dev.Core.NewQP(c) })
	if err != nil {
		return err
	}
	q.twin, q.twinCost = eng, cost
	defer func() {
		if err != nil {
			q.closeTwin()
			q.twin = nil
		}
	}()
	emulateRC(q.twin, d, a)
	q.twin.SetUser(s.account)
	q.twin.OnEmpty(func() { s.refill(q) })
	sender := q.eng
	if err := q.twin.Allow(sender.Allowed()); err != nil {
		return err
	}
	s.pumpMu.Lock()
	defer s.pumpMu.Unlock()
	if err := sender.MoveReceives(q.twin); err != nil {
		return err
	}
	q.to = q.twin
	return nil
}

// closeTwin ends the twin of q, if it has one.
func (q *qp) closeTwin() {
	if q.twin != nil {
		q.twin.Abort()
		q.twin.Close()
		q.s.account.Release(q.twinCost)
	}
}

// dialSelf is dial for a queue pair that is its own peer. Its twin accepts.
func (d *roceConn) dialSelf(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	accepted := make(chan error, 1)
	go func() { accepted <- d.accept(ctx, d.q.twin) }()
	err := d.dial(ctx)
	if err != nil {
		cancel()
	}
	refused := <-accepted
	if err != nil || refused == nil {
		return err
	}
	// The queue pair has used up its connection, so no other attempt can follow.
	d.q.eng.Abort()
	if ctx.Err() == nil {
		d.q.s.waiting.Go(func() { d.failSelf(refused) })
	}
	return fmt.Errorf("%w: %w", verbs.ErrClosed, refused)
}

// failSelf ends a queue pair whose twin did not accept it.
func (d *roceConn) failSelf(err error) {
	q := d.q
	defer guard.Recover(q.s.onDefect("ending a queue pair that is its own peer"))
	text := fmt.Sprintf("RETRY_EXC_ERR: queue pair %#06x cannot be connected to itself: %v",
		d.pair.Local.QPN, err)
	q.s.log.Warn("RETRY_EXC_ERR: the peer does not answer", "qp", q.handle, "error", text)
	d.fail(rdmap.RetryExcErr, text)
}
