package engine

import (
	"context"
	"time"

	"xwarp/ddp/rdmap"
	"xwarp/engine/verbs"
)

// idlePoll is how soon Shutdown looks again whether the queue pair is idle; the wait doubles up to
// longestPoll, so that the end of a thousand queue pairs leaves their worker time for them.
const (
	idlePoll    = time.Millisecond
	longestPoll = 16 * time.Millisecond
)

// Shutdown ends the connection in order: it waits until no work is under way in either direction, closes, and
// waits until the peer has closed too. When ctx is done before that, work under way is flushed, and Shutdown
// returns ctx's error.
func (q *QP) Shutdown(ctx context.Context) error {
	l := q.loop.Load()
	if l == nil {
		return verbs.ErrNotReady
	}
	wait := idlePoll
	again := time.NewTimer(wait)
	defer again.Stop()
	for begun := false; !begun; {
		if err := l.callFor(q, func() { begun = q.closeIdle() }); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			if !begun {
				q.Disconnect()
			}
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
	q.ses.Disconnect(clock())
	q.kick()
	return true
}
