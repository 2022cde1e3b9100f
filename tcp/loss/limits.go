package loss

import "xwarp/tcp/tick"

// Limits, with the attack or exhaustion that they stop, and sizes of the ring of records.
const (
	// maximum of outstanding segments, 32 MiB of records: a program may send tiny segments into a huge window
	maxRecords   = 1 << 20
	firstRecords = 64   // capacity of a new ring
	keptRecords  = 4096 // a larger ring is not kept for the next connection, which may never need it
	// records that one acknowledgement examines without finding them lost: limits the work that hostile SACKs cause
	reorderWalk = 32
	maxBackoff  = 16 // doublings of the RTO; MaxRTO bounds the result earlier
	// maximum of the reordering window in quarters of the least round trip, before SRTT bounds the window: no product
	// overflows, however many duplicates a peer reports
	maxReorderMult = 1 << 10
)

// Defaults for the durations in Config, and constants of the timers and of pacing.
const (
	DefaultInitialRTO  = tick.Second            // RFC 6298, 2.1
	DefaultMinRTO      = 200 * tick.Millisecond // RFC 6298, 2.4 asks for 1 s; deployed stacks use less
	DefaultMaxRTO      = 120 * tick.Second      // RFC 6298, 2.5: at least 60 s
	DefaultMaxAckDelay = 50 * tick.Millisecond  // widespread stacks delay by at most 40 ms
	handshakeLostRTO   = 3 * tick.Second        // RFC 6298, 5.7
	ptoWithoutRTT      = tick.Second            // RFC 8985, 7.2
	// minimum PTO: a peer's thread may wait longer for its processor than two round trips of some us
	ptoFloor    = tick.Millisecond
	renegeWait  = 10 * tick.Millisecond // minimum wait before the SACKs of a peer that seems to renege are dropped
	minRTTHalf  = 150 * tick.Second     // half the window of the least round trip (RFC 8985, 6.2 step 1)
	pacingBurst = 2                     // segments that may be sent ahead of the pacing rate
	// duration by which sending may be ahead of the pacing rate. Shorter round trips are not paced: the timer would
	// cost more than the burst harms
	pacingQuantum = tick.Millisecond
	pacingFree    = 10 // the first segments of a connection, the initial window, are not paced
)

const (
	dupThresh      = 3  // RFC 5681, 3.2
	reorderPersist = 16 // recoveries that an adapted reordering window lasts (RFC 8985, 6.2)
	frtoSegments   = 2  // new segments in F-RTO's second step (RFC 5682, 2.1)
)
