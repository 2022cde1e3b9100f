// Package tcp implements a TCP connection as a value (Conn): RFC 9293 with RFC 5961, 7323, 2018, 2883, 3168, 9768 and
// more. It has no clock, no goroutine and no I/O, and handles sequence numbers instead of payload. Package loss decides
// which segments to retransmit and when. A Listener creates connections from SYNs.
package tcp

import (
	"xwarp/tcp/ip"
	"xwarp/tcp/loss"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// Conn is one connection. It holds no payload and no pointer to itself, so it may be stored in a slab. Times passed to
// its methods must not decrease. For each segment that arrives:
//
//	o := c.Input(&segment, now)
//	for _, r := range o.R[:o.N] { ...; c.Keep(r or a part of it) }
//	c.Finish(now)
//
// After a batch of segments, a call of Expire, or new bytes in the Source, call Poll until it returns false, then
// Events and Deadline.
type Conn struct {
	state     State
	cause     Cause
	events    Events
	passive   bool // created by a Listener
	detached  bool
	softError ip.ICMPKind

	sndSpace
	rcvSpace
	ackState
	ackDelay   ackDelay
	push       PromptAck
	ts         timestamps
	ecn        ecnState
	pmtu       pathMTU
	reply      resetReply
	timer      timers
	cur        arrival
	offered    Offer // the result of Input
	n          Counters
	tx         loss.Sender
	outOfOrder outOfOrder
	auto       autosize
	cfg        Config
	ports      struct{ local, remote uint16 }
}

// sndSpace is the send sequence space (RFC 9293, 3.3.1).
//
//	     una            nxt       frozen        right
//	------|--------------|-----------|-----------|----
//	      | in flight    | frozen by | the peer  |
//	      |              | Source    | has room  |
type sndSpace struct {
	iss, una, nxt  seq.Num
	frozen         seq.Num // end of the bytes from Source.Next; beyond nxt only while a record waits or is cut
	right          seq.Num // SND.UNA + SND.WND
	wl1, wl2       seq.Num
	maxWnd         int // MAX.SND.WND (RFC 5961, 5.2)
	wscale         uint8
	peerMSS        int
	emss           int
	maxPacket      int  // size of the largest packet that is sent, see LimitSegments
	keepBoundaries bool // see KeepBoundaries
	sackOK         bool
	fin            finState
	hasMore        bool // the Source has bytes left
	inRun          bool // the next segment may be written by nextOfRun
	windowBlocked  bool // the window was too small for the Source, and has not opened yet
}

// finState is the progress of our FIN.
type finState uint8

const (
	finNone finState = iota
	finQueued
	finSent
	finAcked
)

// rcvSpace is the receive sequence space.
//
//	   rcvNxt               rcvAdv             limit
//	------|-------------------|------------------|----
//	      | announced window  | space that is not|
//	      |                   | announced yet    |
type rcvSpace struct {
	irs, rcvNxt seq.Num
	rcvAdv      seq.Num // largest right edge announced so far: the limit of acceptance (RFC 7323, 2.4)
	limit       seq.Num // end of the space of the layer above
	space       int     // value of the last SetRcvSpace
	mostSpace   int     // largest value of space
	rcvScale    uint8
	rcvMSS      int // payload of the largest segment received: counts as a full-sized segment
	finSeq      seq.Num
	finSeen     bool // a FIN at finSeq waits until RCV.NXT reaches it
	rcvUp       seq.Num
	urgent      bool
}

// arrival is the state that Input leaves for Finish.
type arrival struct {
	unfinished bool
	hasText    bool // the segment occupies sequence space in the window
	hasPush    bool // the segment has PSH
	offered    int  // bytes offered by Input
	kept       int  // bytes of those kept by Keep
	ackNow     bool // acknowledge at once
	isSYNACK   bool // a SYN-ACK; its acknowledgement is queued already
	hadHoles   bool // bytes were held beyond a hole when this segment arrived
	dup        seq.Range
	keptTo     seq.Num // RCV.NXT after the bytes that were kept in order
	ecr        uint32  // TSecr of the segment, 0 for none
}

// Init resets c to CLOSED with a copy of cfg. local and remote are the ports; iss is the initial send sequence number,
// see ISN.
func (c *Conn) Init(cfg *Config, local, remote uint16, iss seq.Num, now tick.Time) {
	tx, o := c.tx, c.outOfOrder
	o.reset()
	*c = Conn{tx: tx, outOfOrder: o, cfg: *cfg}
	c.cfg.defaults()
	c.ports.local, c.ports.remote = local, remote
	c.iss, c.una, c.nxt, c.frozen, c.right = iss, iss, iss, iss, iss
	c.peerMSS = c.cfg.headers()
	c.pmtu.init(&c.cfg)
	c.maxPacket = maxMTU
	c.space = c.cfg.RcvSpace
	for c.rcvScale < wire.MaxWScale && c.cfg.RcvSpaceMax>>c.rcvScale > 0xffff {
		c.rcvScale++
	}
	c.ts.on = !c.cfg.NoTimestamps
	c.sackOK = !c.cfg.NoSACK
	c.quick = c.cfg.QuickAcks
	c.timer.init(now)
	c.peerMSS = c.defaultMSS()
}

func (c *Conn) defaultMSS() int {
	if c.cfg.IPv6 {
		return defaultMSS6
	}
	return defaultMSS4
}

// Connect starts an active open. The next Poll returns the SYN.
func (c *Conn) Connect(now tick.Time) {
	if c.state != Closed || c.cause != CauseNone {
		return
	}
	c.enter(connect)
	c.nxt = c.iss + 1
	c.timer.startSYN(c.cfg.SYNTimeout, now)
}

// established enters ESTABLISHED and configures the send side with the results of the handshake. If a FIN is queued
// already, it enters FIN-WAIT-1.
func (c *Conn) established(now tick.Time) {
	c.enter(synAcknowledged)
	c.events |= Connected
	c.frozen = c.nxt
	c.emss = c.emssFor(c.pmtu.mtu)
	lc := c.cfg.Loss
	lc.CC.MSS = c.emss
	if !c.sackOK {
		lc.Mode = loss.NoSACK
	}
	lc.Clock = loss.Clock{}
	if c.ts.on {
		lc.Clock = c.clock()
	}
	c.tx.Init(&lc, c.iss+1, now)
	switch c.timer.synTries {
	case 0: // a connection from a cookie: the round trip is unknown
	case 1:
		c.tx.SetHandshakeRTT(now.Sub(c.timer.synFirst), false)
	default:
		c.tx.SetHandshakeRTT(0, true)
	}
	c.timer.syn = tick.Never
	c.timer.noteSegment(now)
	if c.fin == finQueued {
		c.enter(shutdown)
	}
}

// enterClosed ends the connection with the cause why. The state may be CLOSED already.
func (c *Conn) enterClosed(why Cause) {
	c.enter(ended)
	c.inRun = false
	c.cause = why
	c.events |= Ended
	c.timer.stop()
	c.dropAcks()
	c.cur.unfinished = false
}

// Events returns the events since the last call.
func (c *Conn) Events() Events {
	e := c.events
	c.events = 0
	return e
}

// ClearAcked removes Acked from the events and reports whether it was among them.
func (c *Conn) ClearAcked() bool {
	acked := c.events&Acked != 0
	c.events &^= Acked
	return acked
}

// State returns the state.
func (c *Conn) State() State { return c.state }

// Cause returns the reason for the state CLOSED, CauseNone in other states.
func (c *Conn) Cause() Cause { return c.cause }

// SoftError returns the last accepted ICMP error other than packet too big, and clears it. It returns ICMPNone without
// one.
func (c *Conn) SoftError() ip.ICMPKind {
	k := c.softError
	c.softError = ip.ICMPNone
	return k
}

// RcvNxt returns RCV.NXT, the first number not received in order.
func (c *Conn) RcvNxt() seq.Num { return c.rcvNxt }

// RcvEnd returns the number after the last byte received in order: RcvNxt without the peer's FIN.
func (c *Conn) RcvEnd() seq.Num {
	if c.PeerFIN() {
		return c.rcvNxt - 1
	}
	return c.rcvNxt
}

// SndUna returns SND.UNA, the first number that is not acknowledged.
func (c *Conn) SndUna() seq.Num { return c.una }

// SndNxt returns SND.NXT, the next new number to send. Bytes of a frozen record that did not fit into the window lie
// beyond it.
func (c *Conn) SndNxt() seq.Num { return c.nxt }

// DataStart returns the numbers of the first byte sent and of the first byte received. The latter is valid after the
// peer's SYN.
func (c *Conn) DataStart() (snd, rcv seq.Num) { return c.iss + 1, c.irs + 1 }

// EMSS returns the largest payload of a segment in bytes, 0 before ESTABLISHED.
func (c *Conn) EMSS() int { return c.emss }

// PeerFIN reports whether RCV.NXT passed the peer's FIN.
func (c *Conn) PeerFIN() bool {
	switch c.state {
	case CloseWait, Closing, LastAck, TimeWait:
		return true
	}
	return false
}

// KeepBoundaries sets whether segments keep the boundaries of the units (FPDUs) that Source.Next returns. The default,
// false, is a stream of bytes. With boundaries, a unit is cut in three cases only, which Counters count:
//
//   - It is longer than EMSS, which fell or is below the smallest unit (SplitEMSS; SplitRetransmit when EMSS fell
//     after the first transmission).
//   - The largest window that the peer ever announced is smaller than the unit (SplitWindow).
//   - The window stayed too small for the unit during smallWindowProbes window probes (SplitWindow).
func (c *Conn) KeepBoundaries(on bool) { c.keepBoundaries = on }
