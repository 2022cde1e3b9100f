package session

import (
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"xwarp/ddp/rdmap"
	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/rendezvous"
	"xwarp/engine/guard"
	"xwarp/engine/internal/core"
	"xwarp/engine/verbs"
)

// roceConn has the further state of a queue pair that its program connects by ibv_modify_qp. Such programs expect what
// InfiniBand does: the end of the peer is not reported, and the queue pair stays in RTS. Only a request that the peer
// does not answer fails, with RETRY_EXC_ERR, and the others are flushed then. So completions with WR_FLUSH_ERR are
// held until it is known why the connection ended, and after a quiet end until a request has timed out.
type roceConn struct {
	q      *qp
	pair   rendezvous.Pair
	cancel func()        // ends meet
	met    chan struct{} // closed when meet ended

	mu        sync.Mutex
	connected bool
	quiet     bool // the connection ended without an error: nothing is taken from the rings
	paused    bool // SQD: no sends are taken from the ring
	ended     bool // completions are not held any more
	held      []verbs.Completion
	failure   rdmap.Status  // of the next send that is flushed; Success: WR_FLUSH_ERR
	wait      time.Duration // for a peer that does not answer; 0: for ever; see patience
	timer     *time.Timer   // of patience; nil: no request waits
	rnrRetry  int           // how often a message waits for a receive; foreverRNR: for ever
	rnrTimer  *time.Timer   // of a message that waits for a receive of the peer; nil: none
	rnrTurn   uint          // counts the messages that have waited so
	lastErr   error         // of the last attempt to connect
}

// newRoceConn returns the roceConn of a queue pair that makes no attempts to connect.
func newRoceConn(q *qp) *roceConn {
	d := &roceConn{q: q, cancel: func() {}, met: make(chan struct{})}
	close(d.met)
	return d
}

// gate says what may be taken from the rings. waiting reports whether the ring of sends has any.
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

// startTimer is called with mu held, when a request waits for the peer.
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

// stopTimers is called with mu held.
func (d *roceConn) stopTimers() {
	if d.timer != nil {
		d.timer.Stop()
	}
	d.stopRNRTimer()
}

// stopRNRTimer is called with mu held.
func (d *roceConn) stopRNRTimer() {
	if d.rnrTimer != nil {
		d.rnrTimer.Stop()
		d.rnrTimer = nil
	}
}

// setConnected ends the wait for the peer.
func (d *roceConn) setConnected() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.connected = true
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}

// intercept changes a completion of d's queue pair, or holds it. It runs on workers.
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

// setInfiniBandStatus gives the completion of a lost connection the status that InfiniBand has. It is called with mu
// held.
func (d *roceConn) setInfiniBandStatus(v *verbs.Completion) {
	if v.Status != rdmap.WRFlushErr && v.Status != rdmap.FatalErr {
		return
	}
	v.Status = rdmap.WRFlushErr
	if v.Op != rdmap.WRRecv && d.failure != rdmap.Success {
		v.Status, d.failure = d.failure, rdmap.Success
	}
}

// end puts the held completions into their queues, and lets later ones pass. The first send that is flushed has the
// status failure instead, unless that is Success. It returns false when d had ended before.
func (d *roceConn) end(failure rdmap.Status) bool {
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
		to.write(d.q, v)
	}
	d.held = nil
	return true
}

// endQuietly is called when the connection is over. It returns false when the program must be notified: an error of
// the protocol ended it. A program that moved its queue pair to ERR may have it in RESET by now.
func (d *roceConn) endQuietly(err error) bool {
	if errorCause(err) != "" {
		d.end(rdmap.Success)
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return true
	}
	d.quiet, d.lastErr = true, err
	d.stopRNRTimer() // from here on the peer does not answer
	for i := range d.held {
		if d.held[i].Op != rdmap.WRRecv {
			d.startTimer()
			break
		}
	}
	d.q.s.activateLater(d.q) // sends may be in the ring
	return true
}

// failUnanswered is called when the peer has not answered in time.
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
	q.s.log.Warn("a queue pair's peer does not answer", "qp", q.handle, "error", text)
	d.fail(rdmap.RetryExcErr, text)
}

// fail ends the queue pair because of what text says; the oldest send has the status st.
func (d *roceConn) fail(st rdmap.Status, text string) {
	d.flush(st)
	q := d.q
	q.s.sendEvent(&control.Event{Event: control.EventDown, QP: q.handle,
		Error: control.AsError(control.Errorf(control.CodeFailed, "%s", text))})
}

// foreverRNR is the rnr_retry that means no end.
const foreverRNR = 7

// onPeerWaits is called, on a worker, when the oldest message waits for a receive of the peer, and when it does not
// any more. timer is the peer's IBV_QP_MIN_RNR_TIMER.
func (d *roceConn) onPeerWaits(waits bool, timer uint8) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopRNRTimer()
	if !waits || d.ended || d.rnrRetry == foreverRNR {
		return
	}
	wait := rendezvous.RNRWait(timer, d.rnrRetry)
	d.rnrTurn++
	turn := d.rnrTurn
	d.rnrTimer = time.AfterFunc(wait, func() { d.failNotReady(turn, wait) })
}

// failNotReady is called when the peer has posted no receive in time. It does nothing if the timer of that turn was
// stopped as it fired.
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
	d.q.s.log.Warn("a queue pair's peer has no receive posted", "qp", d.q.handle, "error", text)
	d.fail(rdmap.RNRRetryExcErr, text)
}

// flush ends the queue pair and everything that is posted.
func (d *roceConn) flush(failure rdmap.Status) {
	q := d.q
	d.cancel()
	<-d.met
	if !d.end(failure) {
		return
	}
	eng := q.eng.(*core.QP)
	if q.connected.Swap(true) {
		q.s.drain(q) // what the program posted before goes first
		eng.Disconnect()
	} else {
		eng.GiveUp(nil)
		if q.twin != nil {
			q.twin.GiveUp(nil)
		}
	}
	q.s.activateLater(q)
}

// close ends the attempts to connect, and gives the port back.
func (d *roceConn) close() {
	if d == nil {
		return
	}
	d.cancel()
	<-d.met
	d.mu.Lock()
	d.stopTimers()
	d.ended, d.held = true, nil
	d.mu.Unlock()
}

// activateLater has the pump look at p soon.
func (s *Session) activateLater(p poster) {
	go func() {
		s.pumpMu.Lock()
		s.activate(p)
		s.pumpMu.Unlock()
		s.ringer.Rouse()
	}()
}
