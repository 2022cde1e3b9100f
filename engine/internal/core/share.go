package core

import (
	"xwarp/engine/fair"
)

// Share has one user's classes in the queues of one worker: for doorbells, and for connections that transmit. Only that
// worker accesses it.
type Share struct {
	Doorbells fair.Class[*Doorbell]
	conns     any // *fair.Class[T] of ConnClass, nil before its first call
	qps       int // number of queue pairs that are bound to the worker
}

// ConnClass returns the class of the user's connections in the rotation of the device, whose connections are of type T.
func ConnClass[T any](s *Share) *fair.Class[T] {
	if s.conns == nil {
		s.conns = new(fair.Class[T])
	}
	return s.conns.(*fair.Class[T])
}

// SetUser sets the user of q. Each worker divides its turns among users first, and then among the queue pairs of a
// user. Users are compared with ==; nil is the common user of all other queue pairs. SetUser must be called before q
// has a connection.
func (q *QP) SetUser(user any) { q.user = user }

// enterShare adds q to the share of its user on the worker of s; leaveShare removes it. Both run on that worker.
func (s *Shard) enterShare(q *QP) {
	share := s.shares[q.user]
	if share == nil {
		share = &Share{}
		s.shares[q.user] = share
	}
	share.qps++
	q.share = share
}

func (s *Shard) leaveShare(q *QP) {
	if q.share == nil {
		return
	}
	q.share.qps--
	if q.share.qps == 0 {
		delete(s.shares, q.user)
	}
	q.share = nil
}

// requeue appends b to the ready queue: the worker of s serves its target after the turns of other users. It runs on
// that worker.
func (s *Shard) requeue(b *Doorbell) {
	if b.queuedOn.Load() != s {
		b.queuedOn.Store(s)
		s.ready.Push(b.Target.DoorbellClass(s), b)
	}
}

// DoorbellClass implements doorbellTarget.
func (q qpDoorbell) DoorbellClass(s *Shard) *fair.Class[*Doorbell] {
	if q.shard.Load() == s && q.share != nil {
		return &q.share.Doorbells
	}
	return &s.Common.Doorbells
}
