package engine

import "xwarp/engine/verbs"

// Disconnect implements verbs.QP.
func (q *QP) Disconnect() error {
	l := q.loop.Load()
	if l == nil {
		return verbs.ErrNotReady
	}
	return l.callFor(q, func() {
		if q.is(lifeAttached) && !q.is(lifeGone) {
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
		if q.is(lifeGone) {
			q.free()
		} else if q.is(lifeAttached) {
			q.ses.Abort(clock())
			q.ses.Wake()
		}
	})
	if posted { // else the worker ended, and with it everything of q
		<-q.reached[lifeFreed]
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
