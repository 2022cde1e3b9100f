package core

import (
	"xwarp/engine/fair"
	"xwarp/engine/stack"
)

// share is one owner's place in the rotations of one worker. The worker alone touches it.
type Share struct {
	Bells fair.Class[*Doorbell]
	Conns stack.Class
	Steps fair.Class[Carrier]
	qps   int // queue pairs that are bound here
}

// SetOwner names the user of q: each worker divides its turns among owners first, and among an owner's queue pairs
// second. Owners are equal when == says so; nil is the owner of queue pairs without a name. It must be called before q
// has a connection.
func (q *QP) SetOwner(owner any) { q.owner = owner }

// enterShare gives q its place on the worker of l; leaveShare takes it back. Both run there.
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

// again has the worker of l call the owner of b once more, when the other owners had their turn. It runs there.
func (l *Shard) again(b *Doorbell) {
	if b.waits.Load() != l {
		b.waits.Store(l)
		l.bells.Push(b.Owner.BellsOn(l), b)
	}
}

// bellsOn returns where the doorbell of q waits for its turn on the worker of l, which calls it.
func (q qpBell) BellsOn(l *Shard) *fair.Class[*Doorbell] {
	if q.loop.Load() == l && q.share != nil {
		return &q.share.Bells
	}
	return &l.Common.Bells
}
