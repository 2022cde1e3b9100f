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

// life is how far the connection of a queue pair is, seen from its consumer. The worker alone moves it, and only
// forward but for detach. Below it, rdmap.State says what the protocol allows while the connection is established, and
// the state of iwarp.Conn what the octets on the wire are.
//
//	idle --attach--> attached --setUp--> established --setDown--> disconnected --setGone--> gone --free--> freed
//	  '---detach--------'
//
// Calls of setDown and setGone come in each state before theirs.
type life uint32

const (
	lifeIdle         life = iota // Dial or Accept may attach a connection; what is posted waits
	lifeAttached                 // to an attempt; what is posted waits
	lifeEstablished              // what is posted goes into the protocol
	lifeDisconnected             // the queue pair left RTS, or never got there: what is posted is flushed
	lifeGone                     // nothing of the connection is left
	lifeFreed                    // nothing of the queue pair is left on the worker: Close was called, too
)

// is reports whether q got to l.
func (q *QP) is(l life) bool { return life(q.life.Load()) >= l }

// reach moves q on to l and wakes who waits for that; it reports whether q was not there before.
func (q *QP) reach(l life) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.is(l) {
		return false
	}
	q.life.Store(uint32(l))
	q.loop.Load().tell(func() { close(q.reached[l]) })
	return true
}

// attach makes c the connection of q. A queue pair has one connection in its life; only an attempt that never got
// established, and let go of q by release, may be followed by another.
func (q *QP) attach(c *Conn) error {
	switch {
	case q.closed.Load():
		return verbs.ErrClosed
	case q.is(lifeAttached):
		return verbs.ErrHasConn
	}
	q.conn.Store(c)
	q.iw = c.iw
	q.life.Store(uint32(lifeAttached))
	if err := q.bind(c.Owner.Load()); err != nil {
		return err
	}
	if q.closed.Load() { // and Close may not have seen that there is a worker
		q.iw = nil
		q.setGone(verbs.ErrClosed)
		q.free()
		return verbs.ErrClosed
	}
	return nil
}

// bind makes l the owner of q. It runs there.
func (q *QP) bind(l *Shard) error {
	cfg := q.coreConfig(l)
	var err error
	if q.srq != nil {
		cfg.SRQ, err = q.srq.local(l)
	}
	if err == nil {
		err = q.core.Init(cfg)
	}
	if err != nil {
		q.detach()
		return err
	}
	q.core.Deny(verbs.Access(q.denied.Load()))
	l.Sums.enter(q)
	l.enterShare(q)
	q.loop.Store(l)
	q.drain()
	return nil
}

// release undoes bind, before anything was posted to the core, so that another attempt or another worker can take q.
func (q *QP) release() {
	q.core.Destroy()
	if l := q.loop.Load(); l != nil {
		l.Sums.leave(q)
		l.leaveShare(q)
	}
	q.detach()
	q.loop.Store(nil) // from here on it is not this worker's
}

// call runs f on the worker that has q, wherever that moves. It fails with ErrNotReady while there is none.
func (q *QP) call(f func()) error {
	for {
		l, here := q.loop.Load(), false
		if l == nil {
			return verbs.ErrNotReady
		}
		err := l.CallFor(qpBell{q}, func() {
			if here = q.loop.Load() == l; here {
				f()
			}
		})
		if here || err != nil {
			return err
		}
	}
}

// detach undoes attach.
func (q *QP) detach() {
	q.iw = nil
	q.life.Store(uint32(lifeIdle))
}

// giveUp ends q after the last attempt to connect it failed. Where that was before it had a worker it gets one, which
// flushes what was posted.
func (q *QP) giveUp(err error) {
	l := q.loop.Load()
	if l == nil {
		l = q.dev.loops[0]
	}
	closed := l.CallFor(qpBell{q}, func() {
		if q.loop.Load() == nil {
			q.bind(l)
		}
		q.setGone(err)
		if q.closed.Load() { // and Close may have found no worker
			q.free()
		}
	})
	if closed != nil && q.loop.Load() == nil {
		q.setGone(err)
	}
}

// established waits until q is up or cannot come up any more.
func (q *QP) established(ctx context.Context) error {
	select {
	case <-q.reached[lifeEstablished]:
		return nil
	case <-q.Down():
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

// setUp says that the connection is established: p is what MPA agreed on.
func (q *QP) setUp(p *startup.Params) {
	q.mu.Lock()
	q.params = p
	q.mu.Unlock()
	q.reach(lifeEstablished)
	q.drain()
}

// setDown says that the connection left full operation, or will never get there; err is the cause, nil for none.
func (q *QP) setDown(err error) {
	q.mu.Lock()
	if !q.is(lifeDisconnected) {
		q.err = verbs.Wrap("", err)
		q.down = time.Now()
	}
	q.mu.Unlock()
	if q.reach(lifeDisconnected) {
		q.drain()
	}
}

// setGone says that nothing of the connection is left.
func (q *QP) setGone(err error) {
	if q.is(lifeGone) {
		return
	}
	defer q.leave() // also after a panic: somebody waits
	q.setDown(err)
	if q.loop.Load() != nil && q.core.State() == rdmap.Idle {
		q.core.Abort()
	}
	q.drain()
}

// leave wakes who waits for the end of the connection, and gives back what it had.
func (q *QP) leave() {
	q.reach(lifeGone)
	q.mu.Lock()
	h := q.charge
	q.mu.Unlock()
	h.End(Now())
	// Not at once: the connection, which tells of its end here, may still ask the core.
	if l := q.loop.Load(); q.closed.Load() && (l == nil || !l.Post(q.free)) {
		q.free()
	}
}

// keep gives q the charge of its connection in the accounts of peers, which ends with the connection.
func (q *QP) keep(h *budget.Charge) {
	q.mu.Lock()
	q.charge = h
	over := q.is(lifeGone)
	q.mu.Unlock()
	if over {
		h.End(Now())
	}
}

// free flushes what is still posted, in turns of its own where that is much, and gives back what q has. It runs on the
// worker.
func (q *QP) free() {
	if q.is(lifeFreed) {
		return
	}
	l := q.loop.Load()
	for more := true; more; {
		if _, more = q.drain(); more && l.Post(q.free) {
			return
		}
	}
	defer q.reach(lifeFreed) // also after a panic: somebody waits
	q.core.Destroy()
	if l != nil {
		l.Sums.leave(q)
		l.leaveShare(q)
	}
}

// Disconnect implements verbs.QP.
func (q *QP) Disconnect() error {
	return q.call(func() {
		if q.is(lifeAttached) && !q.is(lifeGone) {
			q.iw.Disconnect(Now())
			q.drain()
			q.iw.Wake()
		}
	})
}

// Abort ends the connection with RST, and returns when nothing is left of it. What is posted from then on is
// flushed. It fails with ErrNotReady before there is a connection.
func (q *QP) Abort() error {
	err := q.call(func() {
		if !q.is(lifeGone) {
			q.iw.Abort(Now())
			q.iw.Wake()
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
		q.Farewell()
		q.end()
		q.send.users.Add(-1)
		q.recv.users.Add(-1)
		q.srq.leave()
	})
	return nil
}

// farewellWait is how long a connection may take from the end of full operation to its own before Close resets it.
const farewellWait = time.Second

// Farewell waits while the connection closes in order, a second at most: RST could overtake the FIN or the Terminate of
// either side, or take from the peer what it has not acknowledged.
func (q *QP) Farewell() {
	if !q.is(lifeDisconnected) {
		return
	}
	q.mu.Lock()
	late := time.NewTimer(time.Until(q.down.Add(farewellWait)))
	q.mu.Unlock()
	defer late.Stop()
	select {
	case <-q.Gone():
	case <-late.C:
	}
}

// end ends the connection, or lets none begin where it finds no worker: see attach.
func (q *QP) end() {
	err := q.call(func() {
		if q.is(lifeGone) {
			q.free()
			return
		}
		q.iw.Abort(Now())
		q.iw.Wake()
	})
	if err == nil || errors.Is(err, verbs.ErrDefect) { // else the worker ended, and with it everything of q
		<-q.reached[lifeFreed]
	}
}

// idlePoll is how soon Shutdown looks again whether the queue pair is idle; the wait doubles up to
// longestPoll, so that the end of a thousand queue pairs leaves their worker time for them.
const (
	idlePoll    = time.Millisecond
	longestPoll = 16 * time.Millisecond
)

// Shutdown ends the connection in order: it waits until no work is under way in either direction, closes, and
// waits until the peer has closed too. When ctx is done before that, work under way is flushed, and Shutdown
// returns ctx's error. It fails with ErrNotReady before there is a connection.
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

// closeIdle closes the connection if nothing is under way, and reports whether it is closed or closing. It
// runs on the worker.
func (q *QP) closeIdle() bool {
	if !q.is(lifeAttached) || q.is(lifeDisconnected) {
		return true
	}
	if !q.is(lifeEstablished) || q.core.Busy() || q.sq.len() > 0 {
		return false
	}
	if q.core.State() == rdmap.RTR && q.Params().PeerToPeer { // the peer's RTR frame is still to come (RFC 6581)
		return false
	}
	q.iw.Disconnect(Now())
	q.drain()
	q.iw.Wake()
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
