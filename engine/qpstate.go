package engine

import (
	"xwarp/ddp/rdmap"
	"xwarp/engine/budget"
	"xwarp/engine/verbs"
	"xwarp/mpa/startup"
)

// life is how far the connection of a queue pair is. The worker alone moves it on, and only forward; what is allowed
// between established and disconnected is for the states of the RDMAC verbs to say (rdmap.State).
//
//	idle --attach--> attached --setUp--> established --setDown--> disconnected --setGone--> gone --free--> freed
//	  '---detach--------'
//
// SetDown and setGone are called from each state before theirs; without a worker, which an attempt that failed early
// has not, the goroutine of Dial calls setGone.
type life uint32

const (
	lifeIdle         life = iota // Dial or Accept may attach a connection
	lifeAttached                 // to an attempt; what is posted waits in its queue
	lifeEstablished              // posted work goes into the protocol; from here on, as flushes
	lifeDisconnected             // the queue pair left RTS, or never got there
	lifeGone                     // nothing of the connection is left
	lifeFreed                    // Close was called, too, and nothing of the queue pair is left on the worker
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
	close(q.reached[l])
	return true
}

func (q *QP) setUp(p *startup.Params) {
	q.mu.Lock()
	q.params = p
	q.mu.Unlock()
	q.reach(lifeEstablished)
	q.drain()
}

func (q *QP) setDown(err error) {
	q.mu.Lock()
	if !q.is(lifeDisconnected) {
		q.err = verbs.Wrap("", err)
	}
	q.mu.Unlock()
	if q.reach(lifeDisconnected) {
		q.drain()
	}
}

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

// leave says that nothing of the connection is left.
func (q *QP) leave() {
	q.reach(lifeGone)
	q.mu.Lock()
	h := q.hold
	q.mu.Unlock()
	h.End(clock())
	// Not at once: the connection, which tells of its end here, may still ask the core.
	if l := q.loop.Load(); q.closing && (l == nil || !l.post(q.free)) {
		q.free()
	}
}

// keep gives q the hold of its connection in the accounts of peers, which ends with the connection.
func (q *QP) keep(h *budget.Hold) {
	q.mu.Lock()
	q.hold = h
	over := q.is(lifeGone)
	q.mu.Unlock()
	if over {
		h.End(clock())
	}
}

// free gives back what q has. It runs on the worker.
func (q *QP) free() {
	if !q.is(lifeFreed) {
		defer q.reach(lifeFreed) // also after a panic: somebody waits
		q.core.Destroy()
		if l := q.loop.Load(); l != nil {
			l.sums.leave(q)
		}
	}
}
