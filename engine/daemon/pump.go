package daemon

import (
	"errors"
	"runtime"
	"time"

	"xwarp/engine"
	"xwarp/engine/control"
)

func pause() { time.Sleep(stallPause) }

// pump moves what the client posted into the engine. There is one for each session, so that a client can slow down only
// itself. It reads each entry once, into memory of its own, before it looks at it.
func (s *session) pump() {
	defer close(s.pumped)
	bell := control.Doorbell(s.bell.Mem)
	for s.ctx.Err() == nil {
		worked, stalled := s.scan()
		for i := 0; !worked && !stalled && i < spins; i++ {
			runtime.Gosched()
			worked, stalled = s.scan()
		}
		switch {
		case worked:
			continue
		case stalled:
			pause()
			continue
		}
		control.Arm(bell)
		if worked, stalled = s.scan(); worked || stalled {
			control.Take(bell)
			continue
		}
		if s.ringer.Wait() != nil {
			return
		}
	}
}

// scan gives every queue pair its turn. It reports whether there was anything, and whether something waits for room.
func (s *session) scan() (worked, stalled bool) {
	s.pumping.Lock()
	defer s.pumping.Unlock()
	for _, q := range s.queues {
		w, st := s.post(q)
		worked, stalled = worked || w, stalled || st
	}
	return worked, stalled
}

// drain posts what the client posted until now; the pump may be asleep.
func (s *session) drain(q *qp) {
	worked := true
	for n := 0; worked && n < 2*control.MaxDepth/batch && s.ctx.Err() == nil; n++ {
		var stalled bool
		s.pumping.Lock()
		worked, stalled = s.post(q)
		s.pumping.Unlock()
		if stalled {
			pause()
			worked = true
		}
	}
}

// post takes up to a batch from each work queue of q. It is called with pumping held.
//
// A client that posts a receive and then a Send that makes the peer answer counts on the receive being there first: a Send is
// taken only after all receives that were in the ring when it was.
func (s *session) post(q *qp) (worked, stalled bool) {
	if q.unposted {
		return false, false
	}
	sends, err := q.sq.Len()
	if err == nil {
		var more bool
		worked, more, stalled, err = q.postRecvs()
		if err == nil && !more && q.connected.Load() && (sends > 0 || q.sendHeld) {
			var w, st bool
			w, st, err = q.postSends(min(sends, batch))
			worked, stalled = worked || w, stalled || st
		}
	}
	if err != nil {
		q.unposted = true
		s.fail(err)
	}
	return worked, stalled
}

// postRecvs reports whether it did anything, whether there is more, and whether the engine's queue is full.
func (q *qp) postRecvs() (worked, more, stalled bool, err error) {
	for range batch {
		if !q.recvHeld {
			slot, err := q.rq.Next()
			if slot == nil || err != nil {
				return worked, false, false, err
			}
			copy(q.recvBuf, slot)
			q.rq.Release()
			if err := control.ParseRecv(q.recvBuf, q.sge, &q.recvWR); err != nil {
				return worked, false, false, err
			}
		}
		err := q.q.PostRecv(&q.recvWR)
		if q.recvHeld = errors.Is(err, engine.ErrQueueFull); q.recvHeld {
			return worked, false, true, nil // it would be as full for a program without a daemon
		}
		worked = true
	}
	return worked, true, false, nil
}

// postSends takes up to n entries, and the one that found the engine's queue full before.
func (q *qp) postSends(n int) (worked, stalled bool, err error) {
	if q.sendHeld {
		n++
	}
	for range n {
		if !q.sendHeld {
			slot, err := q.sq.Next()
			if slot == nil || err != nil {
				return worked, false, err
			}
			copy(q.sendBuf, slot)
			q.sq.Release()
			if err := control.ParseSend(q.sendBuf, q.sge, q.inline, &q.sendWR); err != nil {
				return worked, false, err
			}
		}
		err := q.q.PostSend(&q.sendWR)
		if q.sendHeld = errors.Is(err, engine.ErrQueueFull); q.sendHeld {
			return worked, true, nil
		}
		worked = true
	}
	return worked, false, nil
}
