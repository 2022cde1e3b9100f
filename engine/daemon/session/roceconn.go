package session

import (
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"xwarp/ddp/rdmap"
	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/rendezvous"
	"xwarp/engine/guard"
	"xwarp/engine/verbs"
)

// roceConn has the state of a queue pair that its program connects by ibv_modify_qp. Such programs expect InfiniBand
// behaviour: the end of the peer is not reported, and the queue pair stays in RTS. Only a request that the peer does
// not answer fails with RETRY_EXC_ERR, and then the others are flushed. So WR_FLUSH_ERR completions are held until the
// cause of the end is known. If that is no protocol error (quiet), they are held until a request times out or the
// program moves the queue pair to ERR.
type roceConn struct {
	q      *qp
	pair   rendezvous.Pair
	cancel func()        // ends meet
	met    chan struct{} // closed when meet has ended

	mu        sync.Mutex
	connected bool
	quiet     bool // the connection ended without a protocol error: nothing is taken from the rings
	paused    bool // SQD: no sends are taken from the ring
	ended     bool // completions are no longer held
	held      []verbs.Completion
	failure   rdmap.Status  // status of the next flushed send; Success: WR_FLUSH_ERR
	wait      time.Duration // of a request, for an unresponsive peer, from IBV_QP_TIMEOUT; 0: forever; see patience
	timer     *time.Timer   // of patience; nil: not running
	rnrRetry  int           // how often a message waits for a receive; foreverRNR: forever
	rnrTimer  *time.Timer   // of a message that waits for a receive of the peer; nil: none
	rnrTurn   uint          // number of messages that have waited like this
	lastErr   error         // of the last attempt to connect, or of the end of the connection
}

// gate reports whether receives and sends may be taken from the rings. waiting says that there are sends to take. If
// they have to wait for the peer, gate starts the timer.
func (d *roceConn) gate(waiting bool) (recvs, sends bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return true, true
	}
	if waiting && (d.quiet || !d.connected) {
		d.startTimer()
	}
	return !d.quiet, d.connected && !d.quiet && !d.paused
}

// startTimer limits how long requests wait for the peer. It does nothing if the timer runs, or if there is no limit. It
// is called with mu held.
func (d *roceConn) startTimer() {
	if d.timer == nil && d.wait > 0 {
		d.timer = time.AfterFunc(d.patience(), d.failUnanswered)
	}
}

// patience returns how long a request waits for the peer. It is called with mu held.
func (d *roceConn) patience() time.Duration {
	if d.connected {
		return d.wait
	}
	return max(d.wait, rendezvous.MeetGrace)
}

// stopTimers stops both timers. It is called with mu held.
func (d *roceConn) stopTimers() {
	stopTimer(&d.timer)
	stopTimer(&d.rnrTimer)
}

func stopTimer(t **time.Timer) {
	if *t != nil {
		(*t).Stop()
		*t = nil
	}
}

// setConnected ends the wait for the peer.
func (d *roceConn) setConnected() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.connected = true
	stopTimer(&d.timer)
}

// intercept holds a completion of a lost connection, and those that follow it, until releaseHeld is called. It returns
// true if it holds v. After releaseHeld it only sets the status of v to that of InfiniBand. It runs on workers.
func (d *roceConn) intercept(v *verbs.Completion) (held bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		d.setInfiniBandStatus(v)
		return false
	}
	if len(d.held) == 0 && v.Status != rdmap.WRFlushErr && v.Status != rdmap.FatalErr {
		return false
	}
	d.held = append(d.held, *v)
	return true
}

// setInfiniBandStatus gives a completion of a lost connection the status that InfiniBand gives it, see failure. It does
// not change other completions. It is called with mu held.
func (d *roceConn) setInfiniBandStatus(v *verbs.Completion) {
	if v.Status != rdmap.WRFlushErr && v.Status != rdmap.FatalErr {
		return
	}
	v.Status = rdmap.WRFlushErr
	if v.Op != rdmap.WRRecv && d.failure != rdmap.Success {
		v.Status, d.failure = d.failure, rdmap.Success
	}
}

// releaseHeld releases the held completions into their queues and lets later ones pass. The first flushed send gets the
// status failure, unless that is Success. It returns false if d had already ended.
func (d *roceConn) releaseHeld(failure rdmap.Status) bool {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return false
	}
	d.ended, d.quiet, d.failure = true, false, failure
	d.stopTimers()
	for i := range d.held {
		v := &d.held[i]
		d.setInfiniBandStatus(v)
		to := d.q.send
		if v.Op == rdmap.WRRecv {
			to = d.q.recv
		}
		to.write(d.q, v, nil)
	}
	d.held = nil
	return true
}

// onEnd is called when the connection has ended with err. It returns false if the caller must notify the program, which
// is after a protocol error only. Otherwise it returns true, also if the program itself moved the queue pair to ERR: by
// now the queue pair may be in RESET.
func (d *roceConn) onEnd(err error) bool {
	if errorCause(err) != "" {
		d.releaseHeld(rdmap.Success)
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return true
	}
	d.quiet, d.lastErr = true, err
	stopTimer(&d.rnrTimer) // from here on the peer does not answer
	if slices.ContainsFunc(d.held, func(v verbs.Completion) bool { return v.Op != rdmap.WRRecv }) {
		d.startTimer()
	}
	d.q.s.activateLater(d.q) // sends may be in the ring
	return true
}

// failUnanswered ends the queue pair, because the peer has not answered in time. It does nothing if the queue pair has
// ended, or is connected by now.
func (d *roceConn) failUnanswered() {
	q := d.q
	defer guard.Recover(q.s.onDefect("ending a queue pair whose peer does not answer"))
	d.mu.Lock()
	over, err, waited := d.ended || d.connected && !d.quiet, d.lastErr, d.patience()
	d.mu.Unlock()
	if over {
		return
	}
	text := fmt.Sprintf("RETRY_EXC_ERR: no answer from queue pair %#06x at %v within %v",
		d.pair.Remote.QPN, d.pair.Remote.GID, waited)
	if err != nil {
		text += fmt.Sprintf(": %v", err)
	}
	text += fmt.Sprintf(" (is its program running, and does an xwarpd there listen on TCP port %d?)",
		rendezvous.Port)
	q.s.log.Warn("RETRY_EXC_ERR: the peer does not answer", "qp", q.handle, "error", text)
	d.fail(rdmap.RetryExcErr, text)
}

// fail ends the queue pair for the reason in text. The oldest send gets the status st.
func (d *roceConn) fail(st rdmap.Status, text string) {
	d.flush(st)
	q := d.q
	q.s.sendEvent(&control.Event{Event: control.EventDown, QP: q.handle,
		Error: control.AsError(control.Errorf(control.CodeFailed, "%s", text))})
}

// foreverRNR is the rnr_retry that means no limit.
const foreverRNR = 7

// onPeerWaits is called, on a worker, when the oldest message begins or ends waiting for a receive of the peer. timer
// is the peer's IBV_QP_MIN_RNR_TIMER.
func (d *roceConn) onPeerWaits(waits bool, timer uint8) {
	d.mu.Lock()
	defer d.mu.Unlock()
	stopTimer(&d.rnrTimer)
	if !waits || d.ended || d.rnrRetry == foreverRNR {
		return
	}
	wait := rendezvous.RNRWait(timer, d.rnrRetry)
	d.rnrTurn++
	turn := d.rnrTurn
	d.rnrTimer = time.AfterFunc(wait, func() { d.failNotReady(turn, wait) })
}

// failNotReady is called by the timer of a turn (see rnrTurn), if the peer has posted no receive within wait. It does
// nothing if that timer was stopped while it fired.
func (d *roceConn) failNotReady(turn uint, wait time.Duration) {
	defer guard.Recover(d.q.s.onDefect("ending a queue pair whose peer has no receive"))
	d.mu.Lock()
	over := d.ended || d.rnrTimer == nil || d.rnrTurn != turn
	d.mu.Unlock()
	if over {
		return
	}
	text := fmt.Sprintf("RNR_RETRY_EXC_ERR: queue pair %#06x at %v posted no receive within %v "+
		"(post receives earlier on the peer, or set rnr_retry to 7 here)", d.pair.Remote.QPN,
		d.pair.Remote.GID, wait)
	d.q.s.log.Warn("RNR_RETRY_EXC_ERR: the peer posted no receive in time", "qp", d.q.handle,
		"error", text)
	d.fail(rdmap.RNRRetryExcErr, text)
}

// flush ends the queue pair and flushes everything posted. The first flushed send gets the status failure, unless that
// is Success.
func (d *roceConn) flush(failure rdmap.Status) {
	q := d.q
	d.cancel()
	<-d.met
	eng := q.eng
	if !q.connected.Load() { // releaseHeld lets sends into the engine, which must have a worker for them
		eng.GiveUp(nil)
		if q.twin != nil {
			q.twin.GiveUp(nil)
		}
	}
	if !d.releaseHeld(failure) {
		return
	}
	if q.connected.Swap(true) {
		q.s.drain(q) // earlier posts of the program go first
		eng.Disconnect()
	}
	q.s.activateLater(q)
}

// cancelAndDrop ends the attempts to connect, stops the timers, and drops the held completions.
func (d *roceConn) cancelAndDrop() {
	d.cancel()
	<-d.met
	d.mu.Lock()
	d.stopTimers()
	d.ended, d.held = true, nil
	d.mu.Unlock()
}

// activateLater makes the pump scan q soon.
func (s *Session) activateLater(p poster) { go s.wakePump(p) }
