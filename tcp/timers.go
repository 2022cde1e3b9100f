package tcp

import (
	"xwarp/tcp/loss"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// timers are the deadlines of a connection except those of loss.Sender. A timer that is not running is tick.Never.
type timers struct {
	syn             tick.Time // retransmit the SYN
	synRTO          tick.Duration
	synFirst        tick.Time // time of the first SYN
	synTries        int       // SYNs sent
	synBegun        tick.Time // time from which the first SYN was due
	synDue          bool
	delack          tick.Time
	persist         tick.Time
	windowProbes    int       // window probes since the peer last announced a window above zero
	windowProbeDue  bool      // a window probe is due
	override        bool      // the wait for a larger window is over
	windowProbeSent bool      // a window probe was sent and not answered yet
	smallReplies    int       // consecutive window probes whose answers announced a window that is open but too small
	zeroSince       tick.Time // since when the window is zero, or too small with nothing in flight
	keepaliveAt     tick.Time
	keepaliveProbes int
	keepaliveDue    bool
	wait            tick.Time // end of TIME-WAIT, or of FIN-WAIT-2 after Detach
	linger          tick.Time
	lastHeard       tick.Time // time of the last acceptable segment
}

func (t *timers) init(now tick.Time) {
	*t = timers{syn: tick.Never, delack: tick.Never, persist: tick.Never, zeroSince: tick.Never,
		keepaliveAt: tick.Never,
		wait:        tick.Never, linger: tick.Never, lastHeard: now}
}

func (t *timers) stop() { t.init(t.lastHeard) }

func (t *timers) startSYN(rto tick.Duration, now tick.Time) {
	t.synRTO, t.synTries, t.synDue, t.synBegun = rto, 0, true, now
	t.syn = now.Add(rto)
}

// restartSYN makes the SYN-ACK due after a simultaneous open.
func (t *timers) restartSYN(rto tick.Duration) { t.synRTO, t.synDue = rto, true }

func (t *timers) acceptSYN(sentAt tick.Time, tries int) {
	t.synFirst, t.synTries = sentAt, tries
}

// synSent records the sending of a SYN and reports whether it is a retransmission.
func (t *timers) synSent(now tick.Time) bool {
	if t.synTries == 0 {
		t.synFirst = now
	}
	t.synTries++
	t.syn = now.Add(t.synRTO)
	return t.synTries > 1
}

// noteSegment records that an acceptable segment arrived: the peer is alive.
func (t *timers) noteSegment(now tick.Time) {
	t.lastHeard = now
	t.keepaliveProbes = 0
}

func (t *timers) clearZeroWindow() {
	t.zeroSince = tick.Never
	t.windowProbes, t.windowProbeDue = 0, false
}

// noteSent cancels window and keepalive probes after data was sent, because the peer answers the data.
func (t *timers) noteSent() {
	t.persist, t.windowProbeDue, t.override, t.keepaliveDue = tick.Never, false, false, false
	t.windowProbeSent, t.smallReplies = false, 0
}

func (t *timers) startZeroWindow(now tick.Time) {
	if t.zeroSince == tick.Never {
		t.zeroSince = now
	}
}

// Deadline returns when Expire must be called next, tick.Never if no timer runs.
func (c *Conn) Deadline() tick.Time {
	t := &c.timer
	if c.state == Closed {
		return tick.Never
	}
	d := min(t.syn, t.delack, t.persist, t.wait, t.linger)
	if c.state >= Established && c.state != TimeWait {
		d = min(d, c.tx.Deadline(), c.userDeadline(), c.keepaliveDeadline(), c.zeroDeadline(),
			c.pmtu.deadline(c))
	}
	return d
}

// userDeadline returns when the user timeout ends the connection (RFC 9293, 3.8.3 R2; RFC 5482). A peer that keeps
// acknowledging with a zero window is alive (RFC 6429).
func (c *Conn) userDeadline() tick.Time {
	if c.cfg.UserTimeout < 0 {
		return tick.Never
	}
	since, stalled := c.tx.StalledSince()
	if c.timer.zeroSince != tick.Never || !stalled {
		if !stalled && c.timer.windowProbes == 0 {
			return tick.Never
		}
		since = max(since, c.timer.lastHeard)
	}
	return since.Add(c.cfg.UserTimeout)
}

// zeroDeadline returns when the connection ends because the peer keeps a zero window (RFC 6429).
func (c *Conn) zeroDeadline() tick.Time {
	if c.cfg.ZeroWindowTimeout <= 0 || c.timer.persist == tick.Never {
		return tick.Never
	}
	return c.timer.zeroSince.Add(c.cfg.ZeroWindowTimeout)
}

func (c *Conn) keepaliveDeadline() tick.Time {
	if c.cfg.KeepaliveIdle <= 0 || c.una != c.nxt || c.timer.persist != tick.Never {
		return tick.Never
	}
	if c.timer.keepaliveProbes > 0 {
		return c.timer.keepaliveAt
	}
	return c.timer.lastHeard.Add(c.cfg.KeepaliveIdle)
}

// Expire runs the timers that are due at now. Call Poll afterwards.
func (c *Conn) Expire(now tick.Time) {
	c.inRun = false
	t := &c.timer
	if c.state == Closed {
		return
	}
	if t.linger <= now {
		c.Abort(now)
		return
	}
	if t.wait <= now {
		c.expireWait()
		return
	}
	if t.syn <= now && !c.expireSYN(now) {
		return
	}
	if t.delack <= now {
		if !c.ackDelay.waiting && !c.push.brief {
			c.n.DelayedAcks++
		}
		c.ackDelay.backOff(c, now)
		c.push.NoteSent(now)
		c.AckNow()
	}
	if c.state < Established || c.state == TimeWait {
		return
	}
	if c.userDeadline() <= now || c.zeroDeadline() <= now {
		c.endWithReset(CauseTimeout)
		return
	}
	if c.tx.Deadline() <= now && c.tx.Expire(now)&loss.ExpiredRTO != 0 {
		c.pmtu.onTimeout(c, now)
	}
	if c.pmtu.deadline(c) <= now {
		c.pmtu.expire(c, now)
	}
	if t.persist <= now {
		c.expirePersist(now)
	}
	if c.keepaliveDeadline() <= now {
		c.expireKeepalive(now)
	}
}

func (c *Conn) expireWait() {
	if c.state == TimeWait {
		c.enterClosed(CauseClosed)
	} else {
		c.endWithReset(CauseOrphan)
	}
}

// expireSYN retransmits the SYN with back-off, or ends the connection; it reports whether the connection continues. A
// SYN that could not be sent yet waits for UserTimeout, like unacknowledged bytes.
func (c *Conn) expireSYN(now tick.Time) bool {
	t := &c.timer
	if t.synDue && c.state == SynSent {
		if c.cfg.UserTimeout >= 0 && now.Sub(t.synBegun) >= c.cfg.UserTimeout {
			c.enterClosed(CauseTimeout)
			return false
		}
		t.syn = now.Add(t.synRTO)
		return true
	}
	if t.synTries > c.cfg.SYNRetries {
		why := CauseTimeout
		if c.softError != 0 {
			why = CauseUnreachable
		}
		c.enterClosed(why)
		return false
	}
	t.synRTO = min(2*t.synRTO, tick.Minute)
	t.syn = now.Add(t.synRTO)
	t.synDue = true
	return true
}

func (c *Conn) expireKeepalive(now tick.Time) {
	t := &c.timer
	if t.keepaliveProbes >= c.cfg.KeepaliveProbes {
		c.endWithReset(CauseKeepalive)
		return
	}
	t.keepaliveProbes++
	t.keepaliveDue = true
	t.keepaliveAt = now.Add(c.cfg.KeepaliveInterval)
}

// pollWindowOrKeepaliveProbe writes a keepalive or window probe to out, if one is due: a segment without data just left
// of the window, which the peer must answer. A probe with a byte of new data (RFC 9293, 3.8.6.1) would cut a record
// permanently. The probe does not count as an acknowledgement, because the receiver drops it before it processes the
// ACK (3.10.7.4). Older acknowledgements that are still queued, because nothing could be sent for some time, are sent
// first.
func (c *Conn) pollWindowOrKeepaliveProbe(now tick.Time, out *Out) bool {
	t := &c.timer
	if !t.windowProbeDue && !t.keepaliveDue || c.nOwed > 0 && c.owed[0].ack != c.rcvNxt {
		return false
	}
	if t.windowProbeDue {
		c.n.WindowProbes++
	} else {
		c.n.KeepaliveProbes++
	}
	t.windowProbeDue, t.keepaliveDue = false, false
	c.header(out, wire.ACK, c.una-1, c.rcvNxt, now)
	c.ecn.setFlags(out)
	return true
}
