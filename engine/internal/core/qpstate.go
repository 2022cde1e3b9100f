package core

import (
	"context"
	"errors"
	"time"

	"xwarp/ddp/rdmap"
	"xwarp/engine/budget"
	"xwarp/engine/verbs"
	"xwarp/mpa/startup"
)

// life is the progress of a queue pair's connection as its consumer sees it. Only the worker changes it, or GiveUp
// without a worker. It changes only forward, except in detach. Below it, rdmap.State says what the protocol allows
// while the connection is established, and the state of iwarp.Conn says what the bytes on the wire are.
//
//	idle --attach--> attached --markEstablished--> established
//	  '----detach-------'                            markDisconnected
//	                                                 disconnected --markGone--> gone --free--> freed
//
// markDisconnected and markGone may be called in each earlier state.
type life uint32

const (
	lifeIdle         life = iota // Dial or Accept may attach a connection; posted requests wait
	lifeAttached                 // attached to an attempt; posted requests wait
	lifeEstablished              // posted requests go into the protocol
	lifeDisconnected             // the queue pair left RTS, or never reached it: posted requests are flushed
	lifeGone                     // the connection has ended
	lifeFreed                    // Close was called and the worker has released the queue pair
)

// hasReached reports whether q is in l or a later state.
func (q *QP) hasReached(l life) bool { return life(q.life.Load()) >= l }

// reach moves q to l and wakes the goroutines that wait for l. It returns false when q was in l or a later state
// before.
func (q *QP) reach(l life) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.hasReached(l) {
		return false
	}
	q.life.Store(uint32(l))
	q.shard.Load().Notify(func() { close(q.reached[l]) })
	return true
}

// attach makes c the connection of q. A queue pair has one connection in its life. Another may follow only an
// attempt that was not established and called release.
func (q *QP) attach(c *Conn) error {
	switch {
	case q.closed.Load():
		return verbs.ErrClosed
	case q.hasReached(lifeAttached):
		return verbs.ErrHasConn
	}
	q.conn.Store(c)
	q.iw = c.iw
	q.life.Store(uint32(lifeAttached))
	if err := q.bind(c.Owner.Load()); err != nil {
		return err
	}
	if q.closed.Load() { // Close may have run before bind set the shard
		q.iw = nil
		q.markGone(verbs.ErrClosed)
		q.free()
		return verbs.ErrClosed
	}
	return nil
}

// bind makes s the owner of q. It runs on the worker of s.
func (q *QP) bind(s *Shard) error {
	cfg := q.coreConfig(s)
	var err error
	if q.srq != nil {
		cfg.SRQ, err = q.srq.localFor(s)
	}
	if err == nil {
		err = q.rdma.Init(cfg)
	}
	if err != nil {
		q.detach()
		return err
	}
	q.rdma.Deny(verbs.Access(q.denied.Load()))
	s.Sums.addQP(q)
	s.enterShare(q)
	q.shard.Store(s)
	q.takePosted()
	return nil
}

// release undoes attach, so that another attempt or another worker can attach q. Nothing may have been posted to
// q.rdma.
func (q *QP) release() {
	q.rdma.Destroy()
	if s := q.shard.Load(); s != nil {
		s.Sums.removeQP(q)
		s.leaveShare(q)
	}
	q.detach()
	q.shard.Store(nil) // last: from here on another worker may own q
}

// call runs f on the worker that owns q, also when q moves meanwhile. It fails with ErrNotReady while there is none.
func (q *QP) call(f func()) error {
	for {
		l, here := q.shard.Load(), false
		if l == nil {
			return verbs.ErrNotReady
		}
		err := l.CallFor(qpDoorbell{q}, func() {
			if here = q.shard.Load() == l; here {
				f()
			}
		})
		if here || err != nil {
			return err
		}
	}
}

// detach makes q idle again, without the iwarp.Conn that attach set.
func (q *QP) detach() {
	q.iw = nil
	q.life.Store(uint32(lifeIdle))
}

// GiveUp ends q without a connection, because of err, unless that says that q has another connection. If q has no
// worker, it gets one that flushes the posted requests. No attempt to connect q may be under way.
func (q *QP) GiveUp(err error) {
	if errors.Is(err, verbs.ErrHasConn) {
		return
	}
	s := q.shard.Load()
	if s == nil {
		s = q.dev.shards[0]
	}
	closed := s.CallFor(qpDoorbell{q}, func() {
		if q.shard.Load() == nil {
			q.bind(s)
		}
		q.markGone(err)
		if q.closed.Load() { // Close may have found no worker
			q.free()
		}
	})
	if closed != nil && q.shard.Load() == nil {
		q.markGone(err)
	}
}

// established waits until q was established, which returns nil even if it has ended since, or until q failed.
func (q *QP) established(ctx context.Context) error {
	select {
	case <-q.reached[lifeEstablished]:
		return nil
	case <-q.Done():
		if isClosed(q.reached[lifeEstablished]) {
			return nil
		}
		if err := q.Err(); err != nil {
			return err
		}
		return verbs.ErrStartup
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// markEstablished is called when the connection is established with the MPA parameters p.
func (q *QP) markEstablished(p *startup.Params) {
	q.mu.Lock()
	q.params = p
	q.mu.Unlock()
	q.reach(lifeEstablished)
	q.takePosted()
}

// markDisconnected is called when the connection left full operation, or will never reach it; err is the cause, nil for
// none.
func (q *QP) markDisconnected(err error) {
	q.mu.Lock()
	if !q.hasReached(lifeDisconnected) {
		q.err = verbs.Wrap("", err)
		q.downAt = time.Now()
	}
	q.mu.Unlock()
	if q.reach(lifeDisconnected) {
		q.takePosted()
	}
}

// markGone is called when the connection has ended.
func (q *QP) markGone(err error) {
	if q.hasReached(lifeGone) {
		return
	}
	defer q.finishGone() // also after a panic: goroutines may wait
	q.markDisconnected(err)
	// The stream leaves the protocol's queue pair in IDLE when the start-up failed, and when both sides closed it. It
	// gets no other stream, so ERROR flushes the receives that are posted now and later.
	if q.shard.Load() != nil && q.rdma.State() == rdmap.Idle {
		q.rdma.Abort()
	}
	q.takePosted()
}

// finishGone wakes the goroutines that wait for the end of the connection, and releases its charge.
func (q *QP) finishGone() {
	q.reach(lifeGone)
	q.mu.Lock()
	h := q.charge
	q.mu.Unlock()
	h.End(Now())
	// Not at once: the caller is the connection, which may use q.rdma afterwards.
	if s := q.shard.Load(); q.closed.Load() && (s == nil || !s.Post(q.free)) {
		q.free()
	}
}

// setPeerCharge gives q the charge of its connection in its peer's account. It ends with the connection.
func (q *QP) setPeerCharge(h *budget.Charge) {
	q.mu.Lock()
	q.charge = h
	over := q.hasReached(lifeGone)
	q.mu.Unlock()
	if over {
		h.End(Now())
	}
}

// free flushes the requests that are still posted, in several turns if there are many, and releases everything that q
// holds on the worker. It runs there.
func (q *QP) free() {
	if q.hasReached(lifeFreed) {
		return
	}
	s, goesOn := q.shard.Load(), false
	defer func() { // also after a panic: goroutines may wait
		if !goesOn {
			q.leaveWorker(s)
		}
	}()
	for more := true; more; {
		if _, more = q.takePosted(); more && s.Post(q.free) {
			goesOn = true
			return
		}
	}
}

// leaveWorker releases what q holds on the worker of s, which may be nil, and marks q as freed.
func (q *QP) leaveWorker(s *Shard) {
	defer q.reach(lifeFreed)
	q.rdma.Destroy()
	if s != nil {
		s.Sums.removeQP(q)
		s.leaveShare(q)
	}
}

// Disconnect implements verbs.QP.
func (q *QP) Disconnect() error {
	return q.call(func() {
		if q.hasReached(lifeAttached) && !q.hasReached(lifeGone) {
			q.iw.Disconnect(Now())
			q.takePosted()
			q.iw.Schedule()
		}
	})
}

// Abort ends the connection with RST, and returns when it has ended. Later posts are flushed. It fails with ErrNotReady
// before there is a connection.
func (q *QP) Abort() error {
	err := q.call(func() {
		if !q.hasReached(lifeGone) {
			q.iw.Abort(Now())
			q.iw.Schedule()
		}
	})
	if err == nil || errors.Is(err, verbs.ErrDefect) {
		<-q.Gone()
	}
	return err
}

// Close implements verbs.QP.
func (q *QP) Close() error {
	q.close.Do(func() {
		q.closed.Store(true)
		q.AwaitOrderlyEnd()
		q.resetConn()
		q.send.users.Add(-1)
		q.recv.users.Add(-1)
		q.srq.removeUser()
	})
	return nil
}

// orderlyEndWait is how long Close waits, from the end of full operation, for the connection to end before it resets
// the connection.
const orderlyEndWait = time.Second

// AwaitOrderlyEnd waits while the connection closes in order, at most orderlyEndWait. A RST could overtake the FIN or
// the Terminate of either side, or discard data that the peer has not acknowledged.
func (q *QP) AwaitOrderlyEnd() {
	if !q.hasReached(lifeDisconnected) {
		return
	}
	q.mu.Lock()
	late := time.NewTimer(time.Until(q.downAt.Add(orderlyEndWait)))
	q.mu.Unlock()
	defer late.Stop()
	select {
	case <-q.Gone():
	case <-late.C:
	}
}

// resetConn resets the connection and waits until q is freed. Without a worker it does nothing: attach fails on a
// closed q.
func (q *QP) resetConn() {
	err := q.call(func() {
		if q.hasReached(lifeGone) {
			q.free()
			return
		}
		q.iw.Abort(Now())
		q.iw.Schedule()
	})
	if err == nil || errors.Is(err, verbs.ErrDefect) { // otherwise the worker has ended, and has released q
		<-q.reached[lifeFreed]
	}
}

// idlePoll is the first interval at which Shutdown checks that the queue pair is idle. It doubles up to longestPoll, so
// that the checks of a thousand queue pairs leave their worker time for their work.
const (
	idlePoll    = time.Millisecond
	longestPoll = 16 * time.Millisecond
)

// Shutdown closes the connection in order: it waits until no work is in flight in either direction, closes, and waits
// until the peer has closed, too. When ctx is done before that, work in flight is flushed and Shutdown returns the
// context's cause. It fails with ErrNotReady before there is a connection.
func (q *QP) Shutdown(ctx context.Context) error {
	wait := idlePoll
	again := time.NewTimer(wait)
	defer again.Stop()
	for {
		begun := false
		if err := q.call(func() { begun = q.closeIdle() }); err != nil {
			return err
		}
		if begun {
			break
		}
		select {
		case <-ctx.Done():
			q.Disconnect()
			return context.Cause(ctx)
		case <-again.C:
			wait = min(2*wait, longestPoll)
			again.Reset(wait)
		}
	}
	select {
	case <-q.Gone():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// closeIdle closes the connection if no work is in flight, and reports whether it is closed or closing. It
// runs on the worker.
func (q *QP) closeIdle() bool {
	if !q.hasReached(lifeAttached) || q.hasReached(lifeDisconnected) {
		return true
	}
	if !q.hasReached(lifeEstablished) || q.rdma.Busy() || q.sq.len() > 0 {
		return false
	}
	if q.rdma.State() == rdmap.RTR && q.Params().PeerToPeer { // the peer's RTR message is still to come (RFC 6581)
		return false
	}
	q.iw.Disconnect(Now())
	q.takePosted()
	q.iw.Schedule()
	return true
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
