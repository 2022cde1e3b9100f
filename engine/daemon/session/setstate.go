package session

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"xwarp/ddp/rdmap"
	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/rendezvous"
	"xwarp/engine/internal/core"
	"xwarp/engine/verbs"
)

// queryGIDs returns the GIDs of the session's device. It opens their ports, because the program is about to tell its
// peer one of them, which may then dial.
func (s *Session) queryGIDs(*control.Request, []int) (any, error) {
	list, err := s.dev.GIDs()
	for _, a := range list {
		key := rendezvousAddr{s.dev, a} // if the device was reopened, s.dev is new, and so is its port
		if s.gidPorts[key] != nil {
			continue
		}
		closePort, err := s.rendezvous.open(s.dev, a)
		if err != nil {
			s.log.Warn("cannot listen for peers that connect by ibv_modify_qp: they cannot reach this address", "local", a, "error", err)
			continue
		}
		s.gidPorts[key] = closePort
	}
	return control.QueryGIDsResult{GIDs: list}, err
}

// setState changes the state of a queue pair that its program connects by ibv_modify_qp.
func (s *Session) setState(a *control.SetStateArgs) error {
	q, err := find[*qp](s, a.QP)
	if err != nil {
		return err
	}
	switch a.State {
	case control.ToRTR:
		return s.startRendezvous(q, a)
	case control.ToReset:
		return s.resetQP(q)
	case control.ToError:
		return s.failQP(q)
	}
	d := q.roce.Load()
	if d == nil {
		return fmt.Errorf("%w: set_state %s: the queue pair is not in RTR", verbs.ErrInvalid,
			a.State)
	}
	switch a.State {
	case control.ToRTS:
		return d.setRTS(a)
	case control.ToSQD:
		d.mu.Lock()
		d.paused = true
		d.mu.Unlock()
		return nil
	}
	return fmt.Errorf("%w: unknown state %q", verbs.ErrInvalid, a.State)
}

// failQP ends the connection of a queue pair, or the attempt of rdma_cm to connect it, and flushes what is posted. A
// queue pair that had no connection cannot get one any more.
func (s *Session) failQP(q *qp) error {
	if d := q.roce.Load(); d != nil {
		d.flush(rdmap.Success)
		return nil
	}
	s.mu.Lock()
	for q.attempt != nil {
		a := q.attempt
		s.mu.Unlock()
		a.cancel()
		<-a.done
		s.mu.Lock()
	}
	connected := q.connected.Load()
	if !connected {
		q.attempt = newAttempt(func() {}) // makes other attempts fail meanwhile
	}
	s.mu.Unlock()
	if connected {
		s.drain(q) // earlier work requests go first
		return q.eng.Disconnect()
	}
	q.gaveUp.Store(true)
	q.eng.GiveUp(nil)
	s.endAttempt(q, true)
	s.activateLater(q)
	return nil
}

// timeoutUnit is the unit of IBV_QP_TIMEOUT, which is an exponent.
const timeoutUnit = 4096 * time.Nanosecond

func (d *roceConn) setRTS(a *control.SetStateArgs) error {
	if a.Timeout < 0 || a.Timeout > 31 || a.RetryCount < 0 || a.RetryCount > 7 ||
		a.RNRRetry < 0 || a.RNRRetry > foreverRNR {
		return fmt.Errorf("%w: timeout %d, retry_cnt %d, rnr_retry %d: at most 31, 7 and 7",
			verbs.ErrInvalid, a.Timeout, a.RetryCount, a.RNRRetry)
	}
	d.mu.Lock()
	d.paused, d.wait, d.rnrRetry = false, 0, a.RNRRetry
	if a.Timeout > 0 {
		d.wait = timeoutUnit << a.Timeout * time.Duration(a.RetryCount+1)
	}
	d.mu.Unlock()
	d.q.s.activateLater(d.q)
	return nil
}

// startRendezvous moves a queue pair to RTR. From then on it is connected as soon as its peer is in RTR, too.
func (s *Session) startRendezvous(q *qp, a *control.SetStateArgs) error {
	pair := rendezvous.Pair{
		Local:  rendezvous.QPAddr{GID: a.LocalGID.Unmap(), QPN: q.number},
		Remote: rendezvous.QPAddr{GID: a.RemoteGID.Unmap(), QPN: a.RemoteQPN},
	}
	gids, err := s.dev.GIDs()
	switch {
	case err != nil:
		return err
	case !slices.Contains(gids, pair.Local.GID):
		return fmt.Errorf("%w: %v is not an address of %s", verbs.ErrInvalid, pair.Local.GID,
			s.dev.Name)
	case !pair.Remote.GID.IsValid() || pair.Remote.GID.Zone() != "" ||
		pair.Remote.QPN>>rendezvous.QPNBits != 0:
		return fmt.Errorf("%w: RTR needs the peer's address and a QPN of at most %d bits",
			verbs.ErrInvalid, rendezvous.QPNBits)
	case a.RNRTimer < 0 || a.RNRTimer > 31:
		return fmt.Errorf("%w: min_rnr_timer %d, at most 31", verbs.ErrInvalid, a.RNRTimer)
	}
	if err := s.rendezvous.allows(pair.Remote.GID); err != nil {
		return err
	}
	closePort, err := s.rendezvous.open(s.dev, pair.Local.GID)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(q.ended)
	d := &roceConn{q: q, pair: pair, cancel: cancel, met: make(chan struct{})}
	eng := q.eng
	s.mu.Lock()
	err = q.unusedLocked()
	if err == nil {
		err = eng.SetReadDepth(orNone(a.IRD), 0)
	}
	if err == nil {
		err = eng.SetDSCP(s.dscp(a.DSCP))
	}
	if err == nil {
		emulateRC(eng, d, a)
		q.roce.Store(d)
	}
	s.mu.Unlock()
	if err == nil && pair.IsSelf() {
		err = q.makeTwin(d, a)
	}
	if err != nil {
		q.roce.CompareAndSwap(d, nil)
		cancel()
		closePort()
		return err
	}
	s.waiting.Go(func() { d.meet(ctx, closePort) })
	return nil
}

// emulateRC gives a queue pair of the engine the behaviour that programs of ibv_modify_qp expect. Most of it needs a
// peer whose daemon agrees, see core.QP.EmulateRC.
func emulateRC(eng *core.QP, d *roceConn, a *control.SetStateArgs) {
	peer := rendezvous.PeerFrame(d.pair).Append(nil)
	eng.EmulateRC(string(peer), uint8(a.RNRTimer), d.onPeerWaits)
}

// resetQP resets a queue pair, which keeps its number and rings. Posted requests are dropped without completions.
func (s *Session) resetQP(q *qp) error {
	n := &qp{object: q.object, s: s, number: q.number, device: q.device, cfg: q.cfg, pd: q.pd,
		send: q.send, recv: q.recv, srq: q.srq}
	n.ended, n.end = context.WithCancel(s.ctx)
	n.cfg.UserData = n
	if err := n.makeEngine(); err != nil {
		return err
	}
	q.discarded.Store(true)
	s.moveRings(q, n)
	s.mu.Lock()
	s.objects[q.handle] = n
	s.mu.Unlock()
	go n.watch()
	q.endRendezvous()
	s.closeInTime(q, func() error {
		eng := q.eng
		eng.Abort()
		eng.Close()
		q.closeTwin()
		return nil
	})
	return nil
}

// moveRings empties the rings of a queue pair and moves them to another one.
func (s *Session) moveRings(from, to *qp) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	s.pumpMu.Lock()
	defer s.pumpMu.Unlock()
	s.post(from, func() (worked, stalled bool, err error) {
		err = from.sq.Skip()
		if from.rq != nil {
			err = errors.Join(err, from.rq.Skip())
		}
		return false, false, err
	})
	to.posterState = posterState{mem: from.mem, bell: from.bell, ringsClosed: from.ringsClosed}
	to.recvRing = recvRing{rq: from.rq, sge: from.sge, buf: from.buf, to: to.eng}
	to.sq, to.inline, to.sendBuf = from.sq, from.inline, from.sendBuf
	from.ringsClosed = true
	s.posters[to.bell] = to
}
