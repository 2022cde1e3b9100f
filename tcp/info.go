package tcp

import (
	"xwarp/tcp/loss"
	"xwarp/tcp/tick"
)

// Counters of one connection since Init, each event by its cause.
type Counters struct {
	SegsIn, SegsOut   uint64
	BytesIn, BytesOut uint64 // payload kept, payload sent for the first time
	OutOfOrder        uint64 // ranges kept beyond a gap
	DupBytes          uint64 // payload that came twice
	PureAcks          uint64 // acknowledgements without bytes sent
	DelayedAcks       uint64 // of those, after the whole time that an acknowledgement may wait (Config.DelayedAck)
	WindowUpdates     uint64 // of those, because the window opened
	DSACKsSent        uint64
	DupAcks           uint64 // received

	NotKept             uint64 // bytes offered that the layer above did not keep: they count as never received
	OutOfWindow         uint64 // RFC 9293, 3.10.7.4, first check
	PAWSDrops           uint64 // RFC 7323, 5.3
	NoTimestamp         uint64 // RFC 7323, 3.2
	NoACK               uint64 // no ACK bit
	BadAck              uint64 // RFC 5961, 5; before ESTABLISHED: acknowledges no SYN of ours
	NoSYN               uint64 // in SYN-SENT, neither SYN nor a RST that acknowledges ours
	LateRST             uint64 // RST in TIME-WAIT (RFC 1337)
	AfterFIN            uint64 // segments, and ranges held, of bytes behind the peer's FIN: they are not the peer's
	EarlyFINs           uint64 // FINs behind a hole with bytes held beyond them
	AfterEnd            uint64 // segments for a connection that is over
	ChallengeAcks       uint64 // sent
	ChallengeSuppressed uint64 // not sent for want of budget
	ProbesAnswered      uint64 // keepalive and window probes of the peer
	ProbesSuppressed    uint64 // of those, what came too fast to be answered
	HolesRefused        uint64 // segments not offered in full: too many gaps
	WindowTrimmed       uint64 // segments that went beyond the window
	RefusedText         uint64 // bytes after Detach
	WindowShrunk        uint64 // the peer moved its right edge to the left

	SYNRetransmits  uint64
	ResetsOut       uint64
	WindowProbes    uint64
	KeepaliveProbes uint64
	CEIn, ECEIn     uint64 // packets that arrived with CE; acknowledgements that said ECE
	CEBytesOut      uint64 // bytes that the peer reported as marked (RFC 9768)

	SplitEMSS       uint64 // records cut: larger than EMSS, which fell, or is below the smallest record
	SplitWindow     uint64 // records cut: the peer's window never held one
	SplitRetransmit uint64 // records cut when sent again: EMSS had fallen
	PTBAccepted     uint64 // ICMP packet too big that lowered the path MTU
	PTBIgnored      uint64 // not about a segment in flight, below the floor, or refuted
	ICMPIgnored     uint64
	BlackHoles      uint64 // path MTU lowered because full segments vanished
	MTUProbes       uint64
	MTUProbesLost   uint64
	MTURaised       uint64
}

// Info is the state of a connection for people, with the fields of Linux's TCP_INFO.
type Info struct {
	State         State
	Loss          loss.Info // ca_state, retransmits, rto, rtt, rttvar, cwnd, ssthresh, sacked, lost …
	Timestamps    bool
	SACK          bool
	WindowScaling bool
	ECN           ECNMode
	// what is sent is not ECN-capable all the same: the handshake showed that the path changes or stops our
	// bits
	NoECT     bool
	SndWScale uint8
	RcvWScale uint8
	SndMSS    int // EMSS
	RcvMSS    int
	AdvMSS    int
	PathMTU   int
	SndWnd    int // what the peer announced
	RcvWnd    int // what we announced
	RcvSpace  int
	RcvRTT    tick.Duration // round trip as the receiver sees it, 0: not known
	RcvWant   int           // what WantRcvSpace returns
	Unacked   int           // bytes in flight
	NotSent   bool
	HeldBytes int // kept beyond a gap
	HeldHigh  int // most of that ever
	Holes     int
	LastHeard tick.Duration // ago
	Backoff   int           // of the RTO
	Probes    int           // unanswered zero-window or keepalive probes
}

// Counters returns the counters.
func (c *Conn) Counters() Counters { return c.n }

// LossCounters returns the counters of loss recovery.
func (c *Conn) LossCounters() loss.Counters { return c.tx.Counters() }

// Info returns the state for display.
func (c *Conn) Info(now tick.Time) Info {
	i := Info{
		State: c.state, Timestamps: c.ts.on, SACK: c.sackOK, WindowScaling: !c.cfg.NoWScale,
		ECN: c.ecn.mode, NoECT: c.ecn.noECT,
		SndWScale: c.wscale, RcvWScale: c.rcvScale, SndMSS: c.emss, RcvMSS: c.rcvMSS,
		AdvMSS: c.cfg.MSS, PathMTU: c.pmtu.mtu,
		SndWnd: max(0, c.right.Diff(c.una)), RcvWnd: c.rcvWnd(), RcvSpace: c.space,
		RcvRTT: c.auto.rtt, RcvWant: c.auto.want, Unacked: c.nxt.Diff(c.una), NotSent: c.hasMore,
		HeldBytes: c.outOfOrder.bytes, HeldHigh: c.outOfOrder.high, Holes: len(c.outOfOrder.ranges),
		LastHeard: now.Sub(c.timer.lastHeard),
		Probes:    max(c.timer.persistN, c.timer.keepN),
	}
	if c.emss > 0 {
		i.Loss = c.tx.Info(now)
		i.Backoff = i.Loss.Backoff
	}
	return i
}
