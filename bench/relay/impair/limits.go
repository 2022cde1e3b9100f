package impair

import "xwarp/tcp/tick"

// Defaults of Config's fields.
const (
	DefaultReorderDepth = 5
	DefaultReorderHold  = 2 * tick.Millisecond
	DefaultQueue        = 256 << 10 // bytes: 2 ms at 1 Gb/s
	DefaultCorruptAbove = 64        // bytes of TCP payload, see Config.CorruptAbove
	DefaultLinkMTU      = 1500
	// recutHold is the longest that data is held for re-cutting.
	recutHold = 200 * tick.Microsecond

	maxRecutSegments     = 8         // segments of one flow held for re-cutting: a middlebox's small buffer
	maxRecutBytes        = 128 << 10 // the same in bytes, for jumbo frames
	maxRuns              = 1024      // flows held for re-cutting at once: a port scan may not fill memory
	maxHeldForReorder    = 64        // frames held back at once: Reorder = 1 must not stop the path
	maxHeldBytes         = 128 << 20 // everything inside one direction: a long delay times a high rate
	maxFreeBuffers       = 1024      // buffers a pool keeps; more go to the garbage collector
	maxExtensionHeaders  = 8         // IPv6 headers before TCP
	maxQuote4, maxQuote6 = 548, 1232 // bytes quoted by ICMP errors (RFC 1812, 4.3.2.3; RFC 4443, 2.4 (c))
)
