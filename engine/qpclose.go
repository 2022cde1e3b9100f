package engine

import "xwarp/engine/verbs"

// Disconnect implements verbs.QP.
func (q *QP) Disconnect() error {
	l := q.loop.Load()
	if l == nil {
		return verbs.ErrNotReady
	}
	return l.callFor(q, func() {
		if q.ses != nil && !isClosed(q.gone) {
			q.ses.Disconnect(clock())
			q.kick()
		}
	})
}

// Close implements verbs.QP.
func (q *QP) Close() error {
	q.end()
	q.closed.Do(func() {
		q.send.users.Add(-1)
		q.recv.users.Add(-1)
	})
	return nil
}

func (q *QP) end() {
	l := q.loop.Load()
	if l == nil {
		return
	}
	posted := l.post(func() {
		q.closing = true
		l.doing = q
		if isClosed(q.gone) {
			q.free()
		} else if q.ses != nil {
			q.ses.Abort(clock())
			q.wakeTr()
		}
	})
	if posted { // else the worker ended, and with it everything of q
		<-q.freed
	}
}

// free gives back what q has. It runs on the worker.
func (q *QP) free() {
	if !isClosed(q.freed) {
		defer close(q.freed) // also after a panic: somebody waits
		q.core.Destroy()
		if l := q.loop.Load(); l != nil {
			l.sums.leave(q)
		}
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
