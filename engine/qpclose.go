package engine

// Disconnect closes the connection: gracefully when nothing is under way, else what is under way is flushed.
func (q *QP) Disconnect() error {
	l := q.loop.Load()
	if l == nil {
		return ErrNotReady
	}
	return l.callFor(q, func() {
		if q.ses != nil && !isClosed(q.gone) {
			q.ses.Disconnect(clock())
			q.kick()
		}
	})
}

// Close ends the connection abortively if there still is one and gives back what q has.
func (q *QP) Close() error {
	l := q.loop.Load()
	if l == nil {
		return nil
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
	if !posted {
		return nil // the worker ended, and with it everything of q
	}
	<-q.freed
	return nil
}

// free gives back what q has. It runs on the worker.
func (q *QP) free() {
	if !isClosed(q.freed) {
		defer close(q.freed) // also after a panic: somebody waits
		q.core.Destroy()
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
