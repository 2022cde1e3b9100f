package core

import (
	"xwarp/engine/fair"
	"xwarp/engine/stack"
)

// Share is the place of one user in the rotations of one worker. Only that worker accesses it.
type Share struct {
	Doorbells fair.Class[*Doorbell]
	Conns     stack.Class
	Steps     fair.Class[Carrier]
	qps       int // number of queue pairs that are bound to the worker
}

// SetOwner sets the user of q. Each worker divides its turns among users first, and then among the queue pairs of a
// user. Users are compared with ==; nil is the common user of all other queue pairs. SetOwner must be called before q
// has a connection.
func (q *QP) SetOwner(owner any) { q.owner = owner }

// enterShare adds q to the share of its user on the worker of l; leaveShare removes it. Both run on that worker.
func (l *Shard) enterShare(q *QP) {
	s := l.shares[q.owner]
	if s == nil {
		s = &Share{}
		l.shares[q.owner] = s
	}
	s.qps++
	q.share = s
}

func (l *Shard) leaveShare(q *QP) {
	if q.share == nil {
		return
	}
	q.share.qps--
	if q.share.qps == 0 {
		delete(l.shares, q.owner)
	}
	q.share = nil
}

// requeue appends b to the ready queue: the worker of l serves its target after the turns of other users. It runs on
// that worker.
func (l *Shard) requeue(b *Doorbell) {
	if b.queuedOn.Load() != l {
		b.queuedOn.Store(l)
		l.ready.Push(b.Target.DoorbellClass(l), b)
	}
}

// DoorbellClass implements doorbellTarget.
func (q qpDoorbell) DoorbellClass(l *Shard) *fair.Class[*Doorbell] {
	if q.shard.Load() == l && q.share != nil {
		return &q.share.Doorbells
	}
	return &l.Common.Doorbells
}
