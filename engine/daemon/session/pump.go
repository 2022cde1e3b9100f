package session

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"xwarp/ddp/rdmap"
	"xwarp/engine/daemon/control"
	"xwarp/engine/guard"
	"xwarp/engine/verbs"
)

func stallWait() { time.Sleep(stallPause) }

// posterState is embedded in queue pairs and shared receive queues. Session.pumpMu guards it.
type posterState struct {
	mem         *control.Memory
	bell        uint32
	ringsClosed bool // the rings must not be accessed any more
	active      bool // in Session.active
}

func (p *posterState) state() *posterState { return p }

// poster is an object with rings in which the program posts work requests. Its methods are called with Session.pumpMu
// held. They may panic if a page of the rings is missing.
type poster interface {
	state() *posterState
	// postAll moves up to a batch from each ring into the engine. worked reports whether it moved an entry: there may
	// be more, so the pump scans again at once. stalled reports whether an entry waits for room in the engine's queue,
	// which no doorbell announces: the pump scans again after a pause. Both may be true. Other functions of the session
	// return worked and stalled with the same meaning.
	postAll() (worked, stalled bool, err error)
	// postRecvs moves receives only. more reports whether there may be others.
	postRecvs() (worked, more, stalled bool, err error)
}

// pump moves posted work requests into the engine. Each session has its own, so that a program can slow down only
// itself. It copies each entry once and then checks the copy, because the program can change an entry at any time.
func (s *Session) pump() {
	defer close(s.pumpDone)
	defer guard.Recover(s.onDefect("posting work requests"))
	defer guard.Recover(func(v any) {
		s.failLostPage(s.bellPage, v)
	})
	debug.SetPanicOnFault(true)
	sleepWord := control.SleepWord(s.bellPage.Mem)
	stalls := 0 // consecutive
	for s.ctx.Err() == nil {
		worked, stalled := s.scan()
		for i := 0; !worked && !stalled && i < idleSpins; i++ {
			runtime.Gosched()
			worked, stalled = s.scan()
		}
		if worked {
			stalls = 0
			s.restIfIndebted()
			continue
		}
		if stalled && stalls < maxShortStalls {
			stalls++
			stallWait()
			continue
		}
		s.restIfIndebted()
		if s.hasPosters() {
			control.Arm(sleepWord)
			if worked, stalled = s.scan(); worked {
				control.Disarm(sleepWord)
				continue
			}
		}
		var limit time.Duration // none
		if stalled {
			limit = min(stallPause<<stalls, maxStallPause)
			stalls = min(stalls+1, 16)
		} else {
			stalls = 0
		}
		rung, err := s.ringer.Wait(limit)
		if err != nil {
			return
		}
		if rung {
			s.addDebt(wakePenalty)
		}
	}
}

// addDebt adds n to pumpDebt. A doorbell costs a program almost nothing, but makes the daemon scan rings. So the pump
// of a program that rings without work pauses, see restIfIndebted.
func (s *Session) addDebt(n int) {
	s.pumpMu.Lock()
	s.pumpDebt = max(s.pumpDebt+n, 0)
	s.pumpMu.Unlock()
}

// restIfIndebted pauses the pump after too many doorbells for empty rings. Posted work requests lower the debt, so the
// pump of a working program never pauses.
func (s *Session) restIfIndebted() {
	s.pumpMu.Lock()
	debt := s.pumpDebt
	if debt >= maxPumpDebt {
		s.pumpDebt = 0
	}
	s.pumpMu.Unlock()
	if debt >= maxPumpDebt {
		s.count.DoorbellRests.Add(1)
		time.Sleep(min(time.Duration(debt)*debtPause, maxDebtPause))
	}
}

// failLostPage handles a panic v of an access to m, the memory of rings or of the doorbell. If v is a fault in m, the
// program has not touched a page of m, or has removed it, and the session ends: the daemon does not allocate pages for
// programs, see control.Mapper. Otherwise failLostPage panics with v again.
func (s *Session) failLostPage(m *control.Memory, v any) {
	at, ok := v.(interface{ Addr() uintptr })
	if !ok || !m.Holds(at.Addr()) {
		panic(v)
	}
	s.Fail(fmt.Errorf("%w: missing pages in a ring: map it with "+
		"MADV_POPULATE_WRITE, and punch no holes", control.ErrFrame))
}

// hasPosters reports whether the session has or had a queue pair or shared receive queue. Before the first one, the
// program may not have mapped the doorbell yet.
func (s *Session) hasPosters() bool {
	s.pumpMu.Lock()
	defer s.pumpMu.Unlock()
	return len(s.posters) > 0
}

// addPoster assigns a bell to p. It fails if the session has no free bell.
func (s *Session) addPoster(p poster) error {
	defer s.ringer.Rouse() // makes the pump arm the doorbell
	s.pumpMu.Lock()
	defer s.pumpMu.Unlock()
	if n := len(s.freeBells); n > 0 {
		bell := s.freeBells[n-1]
		s.freeBells = s.freeBells[:n-1]
		s.clearDoorbell(bell)
		p.state().bell, s.posters[bell] = bell, p
		return nil
	}
	if len(s.posters) == control.MaxBells {
		return control.Errorf(control.CodeQuota,
			"a session may have at most %d queue pairs and shared receive queues: "+
				"open another session for more", control.MaxBells)
	}
	p.state().bell = uint32(len(s.posters))
	s.posters = append(s.posters, p)
	return nil
}

// clearDoorbell clears a bell before its reuse. A bell that still rings for its previous queue would make the pump read
// the rings of the new one, which the program has not mapped yet.
func (s *Session) clearDoorbell(bell uint32) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer guard.Recover(func(v any) {
		s.failLostPage(s.bellPage, v)
	})
	control.SilenceBell(s.bellPage.Mem, bell)
}

// removePoster frees p's bell. Its rings are not accessed any more.
func (s *Session) removePoster(p poster) {
	s.pumpMu.Lock()
	defer s.pumpMu.Unlock()
	b := p.state()
	b.ringsClosed = true // Session.active may still contain p
	s.posters[b.bell] = nil
	s.freeBells = append(s.freeBells, b.bell)
}

// activate makes the pump scan p. It must be called with pumpMu held.
func (s *Session) activate(p poster) {
	if b := p.state(); !b.active {
		b.active = true
		s.active = append(s.active, p)
	}
}

// scan moves a batch of each queue whose bell rang, or that had entries at the last scan. worked and stalled are those
// of postAll, of any of these queues.
func (s *Session) scan() (worked, stalled bool) {
	s.pumpMu.Lock()
	defer s.pumpMu.Unlock()
	control.TakeBells(s.bellPage.Mem, len(s.posters), func(bell int) {
		if p := s.posters[bell]; p != nil {
			s.activate(p)
		}
		s.pumpDebt++
	})
	n := 0
	for i := 0; i < len(s.active); i++ { // others append while postInTurn releases pumpMu
		p := s.active[i]
		w, st := s.postInTurn(p)
		worked, stalled = worked || w, stalled || st
		if w {
			s.pumpDebt = max(s.pumpDebt-batchCredit, 0)
		}
		b := p.state()
		if b.active = w || st; b.active {
			s.active[n] = p
			n++
		}
	}
	clear(s.active[n:])
	s.active = s.active[:n]
	return worked, stalled
}

// postInTurn moves a batch of p when few enough pumps of the same user are active, so that a user's share of the CPUs
// does not grow with the number of sessions. It must be called with pumpMu held, and releases it while waiting, so that
// refill can use the rings.
func (s *Session) postInTurn(p poster) (worked, stalled bool) {
	s.pumpMu.Unlock()
	s.account.EnterPump()
	s.pumpMu.Lock()
	defer s.account.LeavePump()
	return s.post(p, p.postAll)
}

// drain moves what the program has posted to p so far, even while the pump sleeps. It returns after a bounded number of
// batches; the pump moves the rest.
func (s *Session) drain(p poster) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	more := true
	for n := 0; more && n < 2*control.MaxDepth/batchSize && s.ctx.Err() == nil; n++ {
		s.pumpMu.Lock()
		worked, stalled := s.postInTurn(p)
		s.pumpMu.Unlock()
		if more = worked || stalled; stalled {
			stallWait()
		}
	}
	if more {
		s.wakePump(p)
	}
}

// wakePump makes the pump scan p.
func (s *Session) wakePump(p poster) {
	s.pumpMu.Lock()
	s.activate(p)
	s.pumpMu.Unlock()
	s.ringer.Rouse()
}

// post calls take to move entries of p's rings. If take fails or finds a page missing, the session ends and the rings
// are not accessed any more. post must be called with pumpMu held.
func (s *Session) post(p poster, take func() (worked, stalled bool, err error)) (worked,
	stalled bool) {
	b := p.state()
	if b.ringsClosed {
		return false, false
	}
	defer guard.Recover(func(v any) {
		s.failLostPage(b.mem, v)
		b.ringsClosed, worked, stalled = true, false, false
	})
	worked, stalled, err := take()
	if err != nil {
		b.ringsClosed = true
		s.Fail(err)
	}
	return worked, stalled
}

// refill moves receives from p's ring into the engine, because a message has found none in the engine. It runs on a
// worker. If the pump holds pumpMu for too long, refill gives up: the message waits for the receives that the pump
// posts.
func (s *Session) refill(p poster) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	for range refillSpins {
		if !s.pumpMu.TryLock() {
			runtime.Gosched()
			continue
		}
		defer s.pumpMu.Unlock()
		s.post(p, func() (worked, stalled bool, err error) {
			worked, _, stalled, err = p.postRecvs()
			return worked, stalled, err
		})
		return
	}
}

// postAll implements poster.
//
// A program that posts a receive and then a Send that makes the peer answer relies on the receive being posted first.
// Therefore a Send is moved only if all receives before it have been moved, or the engine's receive queue is full.
// Receives of a shared receive queue have a ring of their own, and no order with Sends. No Send is moved before
// connected is set. After ibv_modify_qp, roceConn.gate may keep Sends, or Sends and receives, in their rings.
func (q *qp) postAll() (worked, stalled bool, err error) {
	sends, err := q.sq.Len()
	if err != nil {
		return false, false, err
	}
	maySend := q.connected.Load()
	if h := q.roce.Load(); h != nil {
		var mayRecv bool
		if mayRecv, maySend = h.gate(sends > 0 || q.sendHeld); !mayRecv {
			return false, false, nil
		}
	}
	worked, more, stalled, err := q.postRecvs()
	if err == nil && !more && maySend && (sends > 0 || q.sendHeld) {
		var w, st bool
		w, st, err = q.postSends(min(sends, batchSize))
		worked, stalled = worked || w, stalled || st
	}
	return worked, stalled, err
}

// recvRing is a ring of receives.
type recvRing struct {
	rq   *control.Consumer // nil if there is no ring
	sge  int
	buf  []byte
	wr   rdmap.RecvWR
	held bool // wr is parsed and waits for room in the engine's queue
	to   interface {
		PostRecv(*verbs.RecvWR) error
	}
}

// postRecvs implements poster.
func (r *recvRing) postRecvs() (worked, more, stalled bool, err error) {
	if r.rq == nil {
		return false, false, false, nil
	}
	for range batchSize {
		if !r.held {
			slot, err := r.rq.Next()
			if slot == nil || err != nil {
				return worked, false, false, err
			}
			copy(r.buf, slot)
			r.rq.Release()
			if err := control.ParseRecv(r.buf, r.sge, &r.wr); err != nil {
				return worked, false, false, err
			}
		}
		err := r.to.PostRecv(&r.wr)
		if r.held = errors.Is(err, verbs.ErrQueueFull); r.held {
			return worked, false, true, nil // the next call posts wr
		}
		worked = true
	}
	return worked, true, false, nil
}

// postSends posts the send that waits for room, if any, and up to n others. A split entry counts as two.
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
			q.isSplit = control.SplitImm(&q.sendWR, &q.nextWR)
			if q.isSplit && q.roce.Load() != nil { // the immediate data carries the length of the Write
				control.PutWriteLen(&q.sendWR, &q.nextWR)
			}
		}
		err := q.eng.PostSend(&q.sendWR)
		if q.sendHeld = errors.Is(err, verbs.ErrQueueFull); q.sendHeld {
			return worked, true, nil
		}
		worked = true
		if q.isSplit {
			q.nextWR.SGL, q.isSplit, q.sendHeld = q.sendWR.SGL[:0], false, true
			q.sendWR = q.nextWR // to be posted next
		}
	}
	return worked, false, nil
}
