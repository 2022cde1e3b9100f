package tcp

import (
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// Verdict is the action that the caller of Listener.Input must take.
type Verdict uint8

const (
	Drop  Verdict = iota // nothing to do
	Reply                // send the segment in out
	// Ready: the handshake is complete. Call Accept, then Conn.Input with the same segment. If the caller does nothing,
	// the peer tries again.
	Ready
)

// CookieMode decides when a Listener answers with SYN cookies (RFC 4987, 3.6).
type CookieMode uint8

const (
	CookiesUnderPressure CookieMode = iota // when there are too many half-open connections
	CookiesNever                           // a SYN beyond the limit is dropped
	CookiesAlways
)

// ListenConfig is the configuration of a Listener.
type ListenConfig struct {
	Conn    Config   // for every connection
	Key     [16]byte // for ISNs, cookies and timestamp offsets; must be secret and random
	Backlog int      // maximum number of half-open connections [256; at most MaxBacklog]
	Cookies CookieMode
	// Gate limits the half-open connections of a peer [no limit]. A SYN that it does not admit is handled as if there
	// were too many half-open connections.
	Gate Gate
}

// Gate counts half-open connections.
type Gate interface {
	Admit(t *Tuple, now tick.Time) bool // counts one more; returns false if there are too many, and does not count it
	Release(t *Tuple, now tick.Time)    // counts one less
}

// Listener is a passive open (RFC 9293, 3.10.7.2). It has a SYN cache of limited size, and uses SYN cookies when the
// cache is full (RFC 4987).
type Listener struct {
	cfg          ListenConfig
	index        map[Tuple]int32
	entries      []halfOpen
	free         []int32
	used         int
	nextDeadline tick.Time
	cursor       int
	scratch      Conn // builds SYN-ACKs
	n            ListenCounters

	cookieUntil tick.Time // end of the life of the last cookie: no cookie is checked later
}

// ListenCounters count the events of a Listener.
type ListenCounters struct {
	SYNs, SYNAcks, Accepted        uint64
	CookiesSent, CookiesAccepted   uint64
	Overflows                      uint64 // SYNs dropped: backlog full or not admitted by Gate, with CookiesNever
	Timeouts, Resets, BadAcks, Old uint64
	CookieTails                    uint64 // segments dropped; see mayFollowCookie
	Ignored                        uint64 // neither SYN nor ACK, RST without a connection, SYN with a bad address
	MixedECN                       uint64 // resets: the SYNs requested ECN of both kinds (RFC 9768, 3.1.5)
	ChallengeSuppressed            uint64 // challenge ACKs of half-open connections beyond a limit, not sent
}

// halfOpen is a connection in SYN-RECEIVED.
type halfOpen struct {
	inUse    bool
	t        Tuple
	iss      seq.Num
	syn      Segment
	window   int // announced in the SYN-ACK
	sentAt   tick.Time
	tries    int
	resendAt tick.Time

	ecnAsked askedSet
	expired  int // SYN-ACKs that were not acknowledged in time

	challengeAt tick.Time // earliest time of the next challenge ACK
}

// Init resets l with a copy of cfg.
func (l *Listener) Init(cfg *ListenConfig, now tick.Time) {
	*l = Listener{cfg: *cfg, nextDeadline: tick.Never}
	l.cfg.Conn.defaults()
	setDefault(&l.cfg.Backlog, 256)
	l.cfg.Backlog = min(max(l.cfg.Backlog, 1), MaxBacklog)
	l.index = make(map[Tuple]int32, l.cfg.Backlog)
	l.entries = make([]halfOpen, l.cfg.Backlog)
	l.free = make([]int32, l.cfg.Backlog)
	for i := range l.free {
		l.free[i] = int32(l.cfg.Backlog - 1 - i)
	}
}

// Pending returns the number of half-open connections.
func (l *Listener) Pending() int { return l.used }

// Counters returns the counters.
func (l *Listener) Counters() ListenCounters { return l.n }

// Input processes a segment that belongs to no Conn. After the verdict Reply, the caller sends out to t.Remote.
func (l *Listener) Input(t *Tuple, s *Segment, now tick.Time, out *Out) Verdict {
	if i, ok := l.index[*t]; ok {
		return l.inputHalfOpen(i, s, now, out)
	}
	switch {
	case s.Flags&wire.RST != 0: // first
		l.n.Ignored++
		return Drop
	case s.Flags&wire.ACK != 0: // second
		if _, ok := l.checkCookie(t, s, now); ok {
			return Ready
		}
		if l.mayFollowCookie(s, now) {
			l.n.CookieTails++
			return Drop
		}
		return replyIf(ResetReply(s, out))
	case s.Flags&wire.SYN == 0 || t.Remote.IsMulticast() || t.Remote.IsUnspecified() ||
		t.Local.IsMulticast():
		l.n.Ignored++
		return Drop
	}
	return l.inputSYN(t, s, now, out)
}

func replyIf(ok bool) Verdict {
	if ok {
		return Reply
	}
	return Drop
}

// inputSYN answers a new SYN. Data in the SYN is ignored, and the peer retransmits it.
func (l *Listener) inputSYN(t *Tuple, s *Segment, now tick.Time, out *Out) Verdict {
	l.n.SYNs++
	switch {
	case l.cfg.Cookies != CookiesAlways && len(l.free) > 0 &&
		(l.cfg.Gate == nil || l.cfg.Gate.Admit(t, now)):
	case l.cfg.Cookies == CookiesNever:
		l.n.Overflows++
		return Drop
	default:
		l.sendCookie(t, s, now, out)
		return Reply
	}
	i := l.free[len(l.free)-1]
	l.free = l.free[:len(l.free)-1]
	l.used++
	l.index[*t] = i
	l.entries[i] = halfOpen{inUse: true, t: *t, iss: ISN(&l.cfg.Key, t, now), syn: *s, sentAt: now}
	l.entries[i].ecnAsked.add(l.cfg.Conn.ecnAsked(s.Flags))
	l.synAck(&l.entries[i], now, out)
	return Reply
}

// buildConn initialises c as the connection of a half-open entry.
func (l *Listener) buildConn(c *Conn, e *halfOpen, now tick.Time) {
	cfg := &l.cfg.Conn
	cfg.TSOffset = TSOffset(&l.cfg.Key, &e.t)
	c.Init(cfg, e.t.LocalPort, e.t.RemotePort, e.iss, now)
	c.initPassive(&e.syn, e.window, e.sentAt, e.tries, now)
	c.ecn.noECT = e.ecnAsked.conflictsWith(c.ecn.mode)
}

// synAck writes the SYN-ACK of e and starts its timer.
func (l *Listener) synAck(e *halfOpen, now tick.Time, out *Out) {
	c := &l.scratch
	l.buildConn(c, e, now)
	if c.ecn.mode == ECNAccurate && e.expired >= ecnSYNACKs {
		c.ecn.plainSYNACK = true
		e.ecnAsked.add(ECNOff)
	}
	c.timer.synDue = true
	c.pollSYN(now, out)
	e.window = int(out.Window)
	e.tries++
	e.resendAt = now.Add(min(l.cfg.Conn.SYNTimeout<<min(e.tries-1, 10), tick.Minute))
	l.nextDeadline = min(l.nextDeadline, e.resendAt)
	l.n.SYNAcks++
}

func (l *Listener) removeEntry(i int32, now tick.Time) {
	if l.cfg.Gate != nil {
		l.cfg.Gate.Release(&l.entries[i].t, now)
	}
	delete(l.index, l.entries[i].t)
	l.entries[i].inUse = false
	l.free = append(l.free, i)
	l.used--
}

// inputHalfOpen processes a segment for half-open connection i, in SYN-RECEIVED (RFC 9293, 3.10.7.4).
func (l *Listener) inputHalfOpen(i int32, s *Segment, now tick.Time, out *Out) Verdict {
	e := &l.entries[i]
	nxt := e.syn.Seq + 1
	syn, rst := s.Flags&wire.SYN != 0, s.Flags&wire.RST != 0
	inWindow := s.Seq.In(nxt, e.window) || s.Seq == nxt
	old := s.Opt.Present&e.syn.Opt.Present&wire.HasTS != 0 && int32(s.Opt.TSVal-e.syn.Opt.TSVal) < 0
	switch {
	case syn && !rst && s.Flags&wire.ACK == 0 && s.Seq == e.syn.Seq: // our SYN-ACK was lost
		if e.ecnAsked.add(l.cfg.Conn.ecnAsked(s.Flags)); e.ecnAsked.isMixed() {
			l.n.MixedECN++
			l.resetEntry(i, now, out)
			return Reply
		}
		e.syn.ECN = s.ECN // the SYN-ACK echoes the ECN bits of the latest SYN
		l.synAck(e, now, out)
		e.tries-- // this SYN-ACK does not count as a retransmission of ours
		e.tries = max(e.tries, 2)
		return Reply
	case !inWindow || old && !rst:
		l.n.Old++
		return replyIf(!rst && l.challengeAck(e, now, out))
	case rst && s.Seq != nxt:
		return replyIf(l.challengeAck(e, now, out))
	case rst, syn:
		l.n.Resets++
		l.removeEntry(i, now)
		return Drop
	case s.Flags&wire.ACK == 0:
		l.n.Ignored++
		return Drop
	case s.Ack != e.iss+1:
		if _, ok := l.checkCookie(&e.t, s, now); ok { // the first of two SYNs was answered with a cookie
			l.removeEntry(i, now)
			return Ready
		}
		if l.mayFollowCookie(s, now) {
			l.n.CookieTails++
			return Drop
		}
		l.n.BadAcks++
		return replyIf(ResetReply(s, out))
	}
	return Ready
}

// resetEntry ends a half-open connection and writes a RST to out.
func (l *Listener) resetEntry(i int32, now tick.Time, out *Out) {
	c := &l.scratch
	l.buildConn(c, &l.entries[i], now)
	c.endWithReset(CauseAborted)
	c.pollReset(now, out)
	l.removeEntry(i, now)
}

// challengeAck writes the challenge ACK <SEQ=SND.NXT><ACK=RCV.NXT><CTL=ACK> to out and returns true, if the limit of e
// and the shared Budget allow it; see Conn.oweChallengeAck.
func (l *Listener) challengeAck(e *halfOpen, now tick.Time, out *Out) bool {
	if b := l.cfg.Conn.Budget; now < e.challengeAt || b != nil && !b.allow(now) {
		l.n.ChallengeSuppressed++
		return false
	}
	e.challengeAt = now.Add(challengePause)
	c := &l.scratch
	l.buildConn(c, e, now)
	c.limit = c.rcvAdv // keep the window of the SYN-ACK: the connection starts with it
	c.oweAck(seq.Range{}, false)
	ok := c.pollAck(now, out)
	e.window = c.rcvAdv.Diff(c.rcvNxt) // scaling may have rounded it up
	return ok
}

// Accept initialises c, in SYN-RECEIVED, as the connection for which Input returned Ready. The caller then calls
// c.Input with the same segment. Accept returns false when there is no such half-open connection and s carries no valid
// cookie.
func (l *Listener) Accept(t *Tuple, s *Segment, c *Conn, now tick.Time) bool {
	i, ok := l.index[*t]
	if !ok {
		e, ok := l.checkCookie(t, s, now)
		if !ok {
			return false
		}
		l.buildConn(c, &e, now)
		l.n.CookiesAccepted++
		l.n.Accepted++
		return true
	}
	l.buildConn(c, &l.entries[i], now)
	l.removeEntry(i, now)
	l.n.Accepted++
	return true
}

// Refuse removes a half-open connection for which Input returned Ready, instead of Accept.
func (l *Listener) Refuse(t *Tuple, now tick.Time) {
	if i, ok := l.index[*t]; ok {
		l.removeEntry(i, now)
	}
}

// Close removes all half-open connections.
func (l *Listener) Close(now tick.Time) {
	for i := range l.entries {
		if l.entries[i].inUse {
			l.removeEntry(int32(i), now)
		}
	}
}

// Deadline returns when Poll must be called next, or tick.Never.
func (l *Listener) Deadline() tick.Time { return l.nextDeadline }

// Poll returns the next SYN-ACK to retransmit and its tuple. Once Deadline has passed, call it until it returns false.
func (l *Listener) Poll(now tick.Time, t *Tuple, out *Out) bool {
	if now < l.nextDeadline && l.cursor == 0 {
		return false
	}
	if l.cursor == 0 {
		l.nextDeadline = tick.Never
	}
	for l.cursor < len(l.entries) {
		i := l.cursor
		l.cursor++
		e := &l.entries[i]
		switch {
		case !e.inUse:
		case now < e.resendAt:
			l.nextDeadline = min(l.nextDeadline, e.resendAt)
		case e.tries > l.cfg.Conn.SYNACKRetries:
			l.n.Timeouts++
			l.removeEntry(int32(i), now)
		default:
			e.expired++
			l.synAck(e, now, out)
			out.Retransmit = true
			*t = e.t
			return true
		}
	}
	l.cursor = 0
	return false
}
