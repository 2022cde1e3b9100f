package cc

const (
	// bytes: the largest window that TCP can advertise (RFC 7323, 2.3); all products fit into 64 bits
	MaxWindow        = 1 << 30
	Infinite         = 1<<31 - 1  // bytes: ssthresh before the first congestion
	minMSS           = 64         // bytes: a smaller MSS would overflow the argument of CUBIC's cube root
	maxMSS           = 1 << 16    // bytes
	initialSegments  = 10         // RFC 6928
	minSsthresh      = 2          // segments (RFC 5681, equation 4)
	maxCubicTime     = 1 << 20    // in 2^-14 s, i.e. 64 s: by then the curve exceeds every window
	hystartSamples   = 8          // N_RTT_SAMPLE (RFC 9406, 4.3)
	hystartMinThresh = 4_000_000  // ns, MIN_RTT_THRESH
	hystartMaxThresh = 16_000_000 // ns, MAX_RTT_THRESH
	hystartDivisor   = 8          // MIN_RTT_DIVISOR
	cssGrowth        = 4          // CSS_GROWTH_DIVISOR
	cssRounds        = 5          // CSS_ROUNDS
	dctcpShift       = 4          // g = 1/16 (RFC 8257, 4.2)
	dctcpOne         = 1 << 16    // alpha's scale
	idleHalvings     = 30         // RFC 2861 halves once per RTO; more halvings than bits change nothing
)
