package tcp

import (
	"xwarp/tcp/loss"
	"xwarp/tcp/tick"
)

// Counters are the counters of one connection since Init.
type Counters struct {
	SegsIn, SegsOut   uint64
	BytesIn, BytesOut uint64 // payload bytes kept; payload bytes sent for the first time
	OutOfOrder        uint64 // ranges kept beyond a hole
	DupBytes          uint64 // duplicate payload received
	PureAcks          uint64 // acknowledgements sent without data
	DelayedAcks       uint64 // expiries of the delayed ACK timer after Config.DelayedAck
	WindowUpdates     uint64 // acknowledgements queued only because the window grew
	DSACKsSent        uint64
	DupAcks           uint64 // received

	NotKept             uint64 // bytes that the layer above did not keep: they count as never received
	OutOfWindow         uint64 // segments outside the window (RFC 9293, 3.10.7.4), and RSTs left of it
	PAWSDrops           uint64 // RFC 7323, 5.3
	NoTimestamp         uint64 // RFC 7323, 3.2
	NoACK               uint64 // segments without ACK
	BadAck              uint64 // unacceptable ACKs (RFC 5961, 5), or, before ESTABLISHED, not of our SYN
	NoSYN               uint64 // in SYN-SENT, segments that are neither a SYN nor a RST that acknowledges ours
	LateRST             uint64 // RST in TIME-WAIT (RFC 1337)
	AfterFIN            uint64 // segments and held ranges with bytes beyond the peer's FIN, dropped
	EarlyFINs           uint64 // FINs after a hole, with bytes held beyond them
	AfterEnd            uint64 // segments for a connection in CLOSED
	ChallengeAcks       uint64 // sent
	ChallengeSuppressed uint64 // not sent: beyond the limit of the connection or the shared Budget
	ProbesAnswered      uint64 // answers to keepalive and window probes of the peer
	ProbesSuppressed    uint64 // probes not answered because they came too fast
	HolesRefused        uint64 // segments not offered in full: too many holes
	WindowTrimmed       uint64 // segments that went beyond the window
	RefusedText         uint64 // segments with new bytes after Detach
	WindowShrunk        uint64 // the peer moved its right edge to the left

	SYNRetransmits  uint64
	ResetsOut       uint64
	WindowProbes    uint64
	KeepaliveProbes uint64
	CEIn, ECEIn     uint64 // packets that arrived with CE; acknowledgements with ECE
	CEBytesOut      uint64 // bytes that the peer reported as marked (RFC 9768)

	SplitEMSS       uint64 // records cut: longer than EMSS, which fell, or is below the smallest record
	SplitWindow     uint64 // records cut: the peer's window is too small for them
	SplitRetransmit uint64 // records cut when retransmitted: EMSS had fallen
	PTBAccepted     uint64 // ICMP packet too big that lowered the path MTU
	PTBIgnored      uint64 // ICMP packet too big without effect: not below the path MTU, or refuted
	ICMPIgnored     uint64
	BlackHoles      uint64 // path MTU lowered because full-sized segments disappeared
	MTUProbes       uint64
	MTUProbesLost   uint64
	MTURaised       uint64
}

// Info is the state of a connection for display, with the fields of Linux's TCP_INFO.
type Info struct {
	State         State
	Loss          loss.Info // ca_state, retransmits, rto, rtt, rttvar, cwnd, ssthresh, sacked, lost …
	Timestamps    bool
	SACK          bool
	WindowScaling bool
	ECN           ECNMode
	// NoECT: segments are sent without ECT although ECN was negotiated, because the path changes or drops the ECN bits,
	// or part of the handshake was without ECN.
	NoECT     bool
	SndWScale uint8
	RcvWScale uint8
	SndMSS    int // EMSS
	RcvMSS    int
	AdvMSS    int
	PathMTU   int
	SndWnd    int // announced by the peer
	RcvWnd    int // announced by this side
	RcvSpace  int
	RcvRTT    tick.Duration // round trip measured by the receiver, 0: unknown
	RcvWant   int           // see WantRcvSpace
	Unacked   int           // bytes in flight
	NotSent   bool
	HeldBytes int // bytes kept beyond a hole
	HeldHigh  int // maximum of HeldBytes so far
	Holes     int
	LastHeard tick.Duration // time since the last acceptable segment
	Backoff   int           // consecutive retransmission timeouts
	Probes    int           // window probes while the window is closed, or unanswered keepalive probes
}

// Counters returns the counters.
func (c *Conn) Counters() Counters { return c.n }

// LossCounters returns the counters of loss recovery.
func (c *Conn) LossCounters() loss.Counters { return c.tx.Counters() }

// AllCounters are the counters of a connection, or the sums of several.
type AllCounters struct {
	Counters
	Loss loss.Counters
}

// AllCounters returns all counters of c.
func (c *Conn) AllCounters() AllCounters { return AllCounters{c.n, c.tx.Counters()} }

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
		Probes:    max(c.timer.windowProbes, c.timer.keepaliveProbes),
	}
	if c.emss > 0 {
		i.Loss = c.tx.Info(now)
		i.Backoff = i.Loss.Backoff
	}
	return i
}
