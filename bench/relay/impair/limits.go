package impair

import "xwarp/tcp/tick"

// Defaults of the fields of Config and Options, and limits of a path.
const (
	DefaultReorderDepth = 5
	DefaultReorderHold  = 2 * tick.Millisecond
	DefaultQueue        = 256 << 10 // bytes: 2 ms at 1 Gb/s
	DefaultCorruptAbove = 64        // bytes of TCP payload, see Config.CorruptAbove
	DefaultLinkMTU      = 1500
	// recutHold is the maximum time for which data is held for re-cutting.
	recutHold = 200 * tick.Microsecond

	maxRecutSegments     = 8         // segments of one flow held for re-cutting, as in a middlebox's small buffer
	maxRecutBytes        = 128 << 10 // bytes of one flow held for re-cutting; the tighter limit for large segments
	maxRuns              = 1024      // flows held for re-cutting at once: a port scan may not fill memory
	maxHeldForReorder    = 64        // frames held for reordering at once: Reorder = 1 must not stop the path
	maxHeldBytes         = 128 << 20 // bytes of buffers in the line: enough for a long delay at a high rate
	maxFreeBuffers       = 1024      // free buffers that a pool keeps; the garbage collector frees the others
	maxExtensionHeaders  = 8         // IPv6 extension headers before TCP
	maxQuote4, maxQuote6 = 548, 1232 // bytes quoted by ICMP errors (RFC 1812, 4.3.2.3; RFC 4443, 2.4 (c))
)
