package loss

import "xwarp/tcp/tick"

// Limits, each with the attack or exhaustion that it stops.
const (
	// segments outstanding: 32 MiB of records, against a source of tiny segments in a huge window
	maxRecords   = 1 << 20
	firstRecords = 64   // capacity of a new ring
	keptRecords  = 4096 // a larger ring is not kept for the next connection
	// records looked at past the last lost one per acknowledgement: bounds the work on hostile SACK
	reorderWalk = 32
	maxBackoff  = 16 // doublings of the RTO; MaxRTO bounds the result earlier
	// quarters of the least round trip in the reordering window, before SRTT bounds it: no product overflows, however
	// long a peer reports duplicates
	maxReorderMult = 1 << 10
)

// Defaults for the durations in Config.
const (
	DefaultInitialRTO  = tick.Second            // RFC 6298, 2.1
	DefaultMinRTO      = 200 * tick.Millisecond // RFC 6298, 2.4 asks for 1 s; deployed stacks use less
	DefaultMaxRTO      = 120 * tick.Second      // RFC 6298, 2.5: at least 60 s
	DefaultMaxAckDelay = 50 * tick.Millisecond  // widespread stacks delay by at most 40 ms
	handshakeLostRTO   = 3 * tick.Second        // RFC 6298, 5.7
	ptoWithoutRTT      = tick.Second            // RFC 8985, 7.2
	// two round trips of some us are less than a peer's thread may wait for its processor
	ptoFloor    = tick.Millisecond
	renegeWait  = 10 * tick.Millisecond // patience before the SACKs of a reneging peer are dropped
	minRTTHalf  = 150 * tick.Second     // half the window of the least round trip (RFC 8985, 6.2 step 1)
	pacingBurst = 2                     // segments that may leave ahead of the pacing rate
	// the same as a time; shorter round trips are not paced: a timer costs more than the burst does harm
	pacingQuantum = tick.Millisecond
	pacingFree    = 10 // segments of a connection that are not paced: the initial window
)

const (
	dupThresh      = 3  // RFC 5681, 3.2
	reorderPersist = 16 // recoveries that an adapted reordering window lasts (RFC 8985, 6.2)
	frtoSegments   = 2  // new segments in F-RTO's second step (RFC 5682, 2.1)
)
