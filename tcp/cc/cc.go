// Package cc is congestion control: a Controller computes a congestion window and a slow start threshold from
// acknowledgements, losses and congestion marks.
//
// It works on bytes and times, which package loss passes to it, not on sequence numbers or segments. All arithmetic is
// on integers, so the same events give the same windows on every machine. All algorithms share one struct, and a switch
// selects the algorithm: a call through an interface would cost four times as much.
package cc

import "xwarp/tcp/tick"

// Algorithm names a congestion control algorithm.
type Algorithm uint8

const (
	CUBIC Algorithm = iota // RFC 9438, with HyStart++ (RFC 9406)
	Reno                   // RFC 5681 with appropriate byte counting (RFC 3465)
	DCTCP                  // RFC 8257; needs per-packet ECN feedback
)

// Config is the configuration of a Controller. Zero means the default for each field but MSS.
type Config struct {
	Algorithm     Algorithm
	MSS           int // bytes in a full segment
	InitialWindow int // segments; 0 means 10 (RFC 6928)
	// ABCLimit is the maximum number of segments that one acknowledgement counts in slow start. Zero means 8 with
	// HyStart++ (RFC 9406, 4.3), otherwise 2 (RFC 3465).
	ABCLimit      int
	MaxWindow     int  // bytes; 0 means the constant MaxWindow
	NoHyStart     bool // no HyStart++: CUBIC leaves slow start only after a loss or a mark
	NoABE         bool // a congestion mark reduces the window as much as a loss (no RFC 8511)
	NoIdleRestart bool // keep the window over idle times (no RFC 2861)
}

// Ack is the controller's input for one acknowledgement.
type Ack struct {
	Now     tick.Time
	Acked   int           // bytes newly acknowledged cumulatively
	Marked  int           // bytes of Acked that carried a congestion mark (DCTCP only)
	RTT     tick.Duration // round trip that this acknowledgement measured, 0 for none
	SRTT    tick.Duration // smoothed round trip, 0 for none yet
	Round   bool          // all bytes that were in flight when the last round began are acknowledged
	Limited bool          // the congestion window limited this round, not the application or the peer
	Grow    bool          // the window may grow: the sender is not in fast recovery or window reduction
}

// Phase is how the window grows now.
type Phase uint8

const (
	SlowStart    Phase = iota
	Conservative       // HyStart++'s conservative slow start
	Avoidance
)

// State is the controller's state for display.
type State struct {
	Algorithm Algorithm
	Phase     Phase
	Cwnd      int // bytes
	Ssthresh  int // bytes; Infinite before the first congestion
	WMax      int // CUBIC: W_max in bytes: the window before the last reduction, or less after fast convergence
	K         tick.Duration
	Alpha     int // DCTCP: share of marked bytes in 1/65536
	Losses    uint32
	Marks     uint32
	Timeouts  uint32
	Undos     uint32
}
