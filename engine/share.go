package engine

import (
	"xwarp/engine/fair"
	"xwarp/engine/stack"
)

// share is one owner's place in the rotations of one worker. The worker alone touches it.
type share struct {
	bells fair.Class[*doorbell]
	conns stack.Class
	steps fair.Class[carrier]
	qps   int // queue pairs that are bound here
}

// SetOwner names the user of q: each worker divides its turns among owners first, and among an owner's queue pairs
// second. Owners are equal when == says so; nil is the owner of queue pairs without a name. It must be called before q
// has a connection.
func (q *QP) SetOwner(owner any) { q.owner = owner }

// enterShare gives q its place on the worker of l; leaveShare takes it back. Both run there.
func (l *loop) enterShare(q *QP) {
	s := l.shares[q.owner]
	if s == nil {
		s = &share{}
		l.shares[q.owner] = s
	}
	s.qps++
	q.share = s
}

func (l *loop) leaveShare(q *QP) {
	if q.share == nil {
		return
	}
	q.share.qps--
	if q.share.qps == 0 {
		delete(l.shares, q.owner)
	}
	q.share = nil
}

// again has the worker of l call the owner of b once more, when the other owners had their turn. It runs there.
func (l *loop) again(b *doorbell) {
	if b.waits.Load() != l {
		b.waits.Store(l)
		l.bells.Push(b.owner.bellsOn(l), b)
	}
}

// bellsOn returns where the doorbell of q waits for its turn on the worker of l, which calls it.
func (q qpBell) bellsOn(l *loop) *fair.Class[*doorbell] {
	if q.loop.Load() == l && q.share != nil {
		return &q.share.bells
	}
	return &l.common.bells
}
