// Package cc is congestion control: a value that turns acknowledgements, losses and congestion marks into a
// window and a slow start threshold.
//
// It knows nothing of sequence numbers or segments: package loss feeds it bytes and times. All arithmetic is
// on integers, so the same events give the same windows on every machine. The algorithms share one struct and
// a switch: a call through an interface costs four times as much as the branch.
package cc

import "xwarp/tcp/tick"

// Algorithm names a congestion control algorithm.
type Algorithm uint8

const (
	CUBIC Algorithm = iota // RFC 9438, with HyStart++ (RFC 9406)
	Reno                   // RFC 5681 with appropriate byte counting (RFC 3465)
	DCTCP                  // RFC 8257; needs per-packet ECN feedback
)

// Config says how a Controller behaves. The zero value of each field but MSS is a sound default.
type Config struct {
	Algorithm     Algorithm
	MSS           int // bytes in a full segment
	InitialWindow int // segments; 0 means 10 (RFC 6928)
	// segments counted per acknowledgement in slow start; 0 means 2 (RFC 3465), 8 with HyStart++ (RFC 9406,
	// 4.3)
	ABCLimit      int
	MaxWindow     int  // bytes; 0 means MaxWindow
	NoHyStart     bool // CUBIC leaves slow start only by loss or marks
	NoABE         bool // a congestion mark counts as much as a loss (RFC 8511 off)
	NoIdleRestart bool // keep the window over idle times (RFC 2861 off)
}

// Ack is the controller's input for one acknowledgement.
type Ack struct {
	Now     tick.Time
	Acked   int           // bytes newly acknowledged cumulatively
	Marked  int           // of those, bytes that met congestion (DCTCP only)
	RTT     tick.Duration // round trip measured by this acknowledgement, 0 for none
	SRTT    tick.Duration // smoothed round trip, 0 for none yet
	Round   bool          // all bytes that were in flight when the last round began are acknowledged
	Limited bool          // the congestion window limited this round, not the application or the peer
	Grow    bool          // the window may grow: not in fast recovery or window reduction
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
	WMax      int // CUBIC: window before the last reduction, bytes
	K         tick.Duration
	Alpha     int // DCTCP: share of marked bytes in 1/65536
	Losses    uint32
	Marks     uint32
	Timeouts  uint32
	Undos     uint32
}
