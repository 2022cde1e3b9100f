// Package loss keeps the send state of TCP: one record per segment, the round trip estimate and the retransmission
// timers. It decides which segments to retransmit and when new ones may be sent.
//
// Config.Mode chooses how losses are detected. With a peer that sends SACK it is RACK-TLP (RFC 8985) or RFC 6675,
// otherwise NewReno (RFC 6582). Recovery is paced by proportional rate reduction (RFC 9937). A recovery that turns out
// to be spurious is undone (RFC 2883, 4015, 5682). The window itself comes from package cc.
//
// The caller's transmit loop:
//
//	for {
//		if tx, ok := s.Retransmit(now); ok {
//			r := first bytes of tx.Range, all of it unless the MSS fell
//			send r; s.Retransmitted(r, now)
//		} else if s.Permit(now) == 0 {
//			break
//		} else if n := new segment the peer's window allows; n > 0 {
//			send it; s.Sent(range, kind, more, now)
//		} else if !s.NoNewData(now) {
//			break
//		}
//	}
package loss

import (
	"xwarp/tcp/cc"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// Kind is the content of a record.
type Kind uint8

const (
	Data Kind = iota
	FIN       // data, possibly none, and then a FIN, which is the last number of the range
)

// Mode is the method of loss detection.
type Mode uint8

const (
	RACK   Mode = iota // RFC 8985
	SACK               // RFC 6675
	NoSACK             // duplicate acknowledgements, RFC 6582
)

// State is the state of recovery, with Linux's names.
type State uint8

const (
	Open     State = iota
	Disorder       // segments arrived out of order, none is marked lost
	CWR            // the window shrinks after a congestion mark, or a loss that a tail loss probe repaired
	Recovery       // fast recovery
	Loss           // after a retransmission timeout
)

// Clock maps time to the sender's timestamp option (RFC 7323). Tick 0 means that the connection has no timestamps.
type Clock struct {
	Tick   tick.Duration // duration of one unit of TSval
	Offset uint32        // TSval at time 0
}

// Config is the configuration of a Sender. A duration of 0 means the default in limits.go.
type Config struct {
	CC          cc.Config // CC.MSS is the effective MSS at the start
	Mode        Mode      // RACK and SACK need a peer that negotiated SACK: otherwise set NoSACK
	Clock       Clock     // the clock of the timestamps that the connection sends
	MinRTO      tick.Duration
	MaxRTO      tick.Duration
	InitialRTO  tick.Duration
	MaxAckDelay tick.Duration // how long the peer may delay an acknowledgement
	Pacing      bool          // spread new segments over round trips of a millisecond and more
	NoTLP       bool
	NoFRTO      bool
	NoUndo      bool
	ForgetSACK  bool // drop all SACK information at each timeout (RFC 2018, 8), even of a peer that never reneged
}

// Ack is the acknowledgement in a segment of the peer. The caller has checked that it is acceptable (RFC
// 9293, 3.10.7.4; RFC 5961, 5).
type Ack struct {
	Ack           seq.Num
	SACK          [4]seq.Range
	NSACK         int
	TSEcr         uint32 // valid if HasTS
	HasTS         bool   // only with Config.Clock
	ECE           bool   // classic ECN: the ECN-Echo flag
	CEBytes       int    // AccECN: bytes newly reported as marked, 0 otherwise
	WindowChanged bool   // the advertised window differs from the last one
	HasData       bool   // the segment has payload, SYN or FIN: never a duplicate acknowledgement
}

// Result is the effect of an acknowledgement.
type Result struct {
	NewlyAcked int           // bytes (and FIN) that Una moved over
	Delivered  int           // bytes newly known to have arrived, by cumulative or selective acknowledgement
	RTT        tick.Duration // round trip sample, 0 for none
	FINAcked   bool
	DupAck     bool
	DSACK      bool // the peer reports duplicate bytes
	CWR        bool // the window was reduced: with ECN, set CWR on the next new data segment (RFC 3168, 6.1.2)
	Undone     bool // a spurious reduction was undone
	Reneged    bool // the peer seems to have discarded bytes that it had SACKed: the first record is SACKed
}

// Tx is a record to retransmit.
type Tx struct {
	seq.Range
	Kind Kind
	TLP  bool // a tail loss probe: must be sent even if the window is full
}

// Expired is the set of timers that were due in Expire.
type Expired uint8

const (
	ExpiredRTO Expired = 1 << iota // retransmission timeout, or the peer reneged: the head record is lost
	// tail loss probe: send one new segment if there is one, else Retransmit returns the last record
	ExpiredTLP
	ExpiredReorder // the time that RACK allows for reordering is over
	ExpiredPacing  // the pacing gap is over
)

// Counters count events since Init.
type Counters struct {
	Sent               uint64 // new segments
	Retransmitted      uint64 // retransmissions, all causes
	RetransmittedBytes uint64
	FastRecoveries     uint64
	Timeouts           uint64
	Probes             uint64 // tail loss probes
	ProbesRepaired     uint64 // losses that a tail loss probe repaired
	ProbesSpurious     uint64 // tail loss probes without a loss
	DSACKs             uint64
	UndoDSACK          uint64
	UndoEifel          uint64
	UndoFRTO           uint64
	Reneged            uint64
	InvalidSACK        uint64 // SACK blocks that are empty, or have numbers that were not sent or are too old
	ECNReductions      uint64
	LostRetransmits    uint64
	PartialAcks        uint64 // acknowledgements that ended inside a record
	Splits             uint64 // partial retransmissions (the MSS fell)
}

// Info is a Sender's state for display (TCP_INFO).
type Info struct {
	State       State
	Mode        Mode
	CC          cc.State
	SRTT        tick.Duration
	RTTVar      tick.Duration
	MinRTT      tick.Duration
	RTO         tick.Duration // with back-off
	Backoff     int
	Records     int // segments outstanding
	Outstanding int // bytes between Una and Nxt
	Pipe        int // estimated bytes in the network
	Sacked      int // bytes
	Lost        int // bytes marked lost and not retransmitted yet
	ReorderSeen bool
	ReorderWnd  tick.Duration
	Rate        int // bytes per second delivered in the last round trip
	AppLimited  bool
	PacingRate  int // bytes per second, 0 without pacing
	Counters    Counters
}
