package daemon

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"xwarp/engine/daemon/control"
	"xwarp/engine/verbs"
)

func pause() { time.Sleep(stallPause) }

// pump moves what the client posted into the engine. There is one for each session, so that a client can slow down only
// itself. It reads each entry once, into memory of its own, before it looks at it.
func (s *session) pump() {
	defer close(s.pumped)
	defer s.contain("taking work requests")
	defer func() {
		if v := recover(); v != nil {
			s.lostRing(s.bell, v)
		}
	}()
	debug.SetPanicOnFault(true)
	bell := control.Doorbell(s.bell.Mem)
	stalls := 0 // in a row
	for s.ctx.Err() == nil {
		worked, stalled := s.scan()
		for i := 0; !worked && !stalled && i < spins; i++ {
			runtime.Gosched()
			worked, stalled = s.scan()
		}
		if worked {
			stalls = 0
			continue
		}
		if stalled && stalls < shortStalls {
			stalls++
			pause()
			continue
		}
		s.rest()
		if s.listed() {
			control.Arm(bell)
			if worked, stalled = s.scan(); worked {
				control.Take(bell)
				continue
			}
		}
		var limit time.Duration // none
		if stalled {
			limit = min(stallPause<<stalls, longestStall)
			stalls = min(stalls+1, 16)
		} else {
			stalls = 0
		}
		rung, err := s.ringer.Wait(limit)
		if err != nil {
			return
		}
		if rung {
			s.owe(wakeDebt)
		}
	}
}

// owe adds n to the debt of the program, less when n is negative. A ring costs the program next to nothing
// and the daemon a look into rings, so that a program which rings for nothing goes without attention for a
// while, by itself.
func (s *session) owe(n int) {
	s.pumping.Lock()
	s.debt = max(s.debt+n, 0)
	s.pumping.Unlock()
}

// rest has a program in debt wait. What is posted counts against debt, so that programs which post something
// never get there.
func (s *session) rest() {
	s.pumping.Lock()
	debt := s.debt
	if debt >= mostDebt {
		s.debt = 0
	}
	s.pumping.Unlock()
	if debt >= mostDebt {
		s.d.ended.rests.Add(1)
		time.Sleep(min(time.Duration(debt)*debtPause, longestRest))
	}
}

// lostRing ends a session because of the panic v of an access to a ring or the doorbell. The program has not
// touched the page that is not there, or took it away; it shall pay for its pages, see control.Mapper. Other
// panics go on.
func (s *session) lostRing(m *control.Memory, v any) {
	at, ok := v.(interface{ Addr() uintptr })
	if !ok || !m.Holds(at.Addr()) {
		panic(v)
	}
	s.fail(fmt.Errorf("%w: a ring without all its pages: a program maps it with "+
		"MADV_POPULATE_WRITE, and punches no holes", control.ErrFrame))
}

// listed reports whether the session has had a queue pair. Before that the program may not have mapped the
// doorbell yet.
func (s *session) listed() bool {
	s.pumping.Lock()
	defer s.pumping.Unlock()
	return len(s.bells) > 0
}

// enlist gives q a bell.
func (s *session) enlist(q *qp) error {
	defer s.ringer.Rouse() // the pump arms the doorbell
	s.pumping.Lock()
	defer s.pumping.Unlock()
	if n := len(s.free); n > 0 {
		q.bell = s.free[n-1]
		s.free = s.free[:n-1]
		s.bells[q.bell] = q
		return nil
	}
	if len(s.bells) == control.MaxQPs {
		return &control.Error{Code: control.CodeQuota,
			Text: fmt.Sprintf("a program has at most %d queue pairs: use another session for more",
				control.MaxQPs)}
	}
	q.bell = uint32(len(s.bells))
	s.bells = append(s.bells, q)
	return nil
}

// delist closes q's rings.
func (s *session) delist(q *qp) {
	s.pumping.Lock()
	defer s.pumping.Unlock()
	q.unposted = true // active may still have it
	s.bells[q.bell] = nil
	s.free = append(s.free, q.bell)
}

// activate has the pump look at q. It is called with pumping held.
func (s *session) activate(q *qp) {
	if !q.active {
		q.active = true
		s.active = append(s.active, q)
	}
}

// scan gives the queue pairs whose bells rang, and those that had something before, their turn. It reports
// whether there was anything, and whether something waits for room.
func (s *session) scan() (worked, stalled bool) {
	s.pumping.Lock()
	defer s.pumping.Unlock()
	control.TakeBells(s.bell.Mem, len(s.bells), func(bell int) {
		if q := s.bells[bell]; q != nil {
			s.activate(q)
		}
		s.debt++
	})
	n := 0
	for _, q := range s.active {
		w, st := s.post(q)
		worked, stalled = worked || w, stalled || st
		if w {
			s.debt = max(s.debt-workCredit, 0)
		}
		if q.active = w || st; q.active {
			s.active[n] = q
			n++
		}
	}
	clear(s.active[n:])
	s.active = s.active[:n]
	return worked, stalled
}

// drain posts what the client posted until now; the pump may be asleep.
func (s *session) drain(q *qp) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	more := true
	for n := 0; more && n < 2*control.MaxDepth/batch && s.ctx.Err() == nil; n++ {
		s.pumping.Lock()
		worked, stalled := s.post(q)
		s.pumping.Unlock()
		if more = worked || stalled; stalled {
			pause()
		}
	}
	if more {
		s.pumping.Lock()
		s.activate(q)
		s.pumping.Unlock()
		s.ringer.Rouse()
	}
}

// post takes up to a batch from each work queue of q. It is called with pumping held.
//
// A client that posts a receive and then a Send that makes the peer answer counts on the receive being there
// first: a Send is taken only after all receives that were in the ring when it was.
func (s *session) post(q *qp) (worked, stalled bool) {
	if q.unposted {
		return false, false
	}
	defer func() {
		if v := recover(); v != nil {
			s.lostRing(q.mem, v)
			q.unposted, worked, stalled = true, false, false
		}
	}()
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

// refill posts the receives that are in q's ring: a message has come that finds none. It runs on a
// worker, which waits for the pump only as long as a batch takes.
func (q *qp) refill() {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	for range refillTries {
		if !q.s.pumping.TryLock() {
			runtime.Gosched()
			continue
		}
		defer q.s.pumping.Unlock()
		defer func() {
			if v := recover(); v != nil {
				q.s.lostRing(q.mem, v)
				q.unposted = true
			}
		}()
		if q.unposted {
			return
		}
		if _, _, _, err := q.postRecvs(); err != nil {
			q.unposted = true
			q.s.fail(err)
		}
		return
	}
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
		if q.recvHeld = errors.Is(err, verbs.ErrQueueFull); q.recvHeld {
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
			q.split = control.SplitImm(&q.sendWR, &q.then)
		}
		err := q.q.PostSend(&q.sendWR)
		if q.sendHeld = errors.Is(err, verbs.ErrQueueFull); q.sendHeld {
			return worked, true, nil
		}
		worked = true
		if q.split {
			q.then.SGL, q.split, q.sendHeld = q.sendWR.SGL[:0], false, true
			q.sendWR = q.then // the next one to be posted
		}
	}
	return worked, false, nil
}
