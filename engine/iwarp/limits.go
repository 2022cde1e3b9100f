package iwarp

import "xwarp/tcp/tick"

const (
	// DefaultWindow is the maximum number of bytes in flight per connection: enough for 10 Gbit/s at 3 ms. Only data
	// that cannot be placed on arrival takes memory.
	DefaultWindow = 4 << 20
	// MinWindow is the window if the worker has no memory left for out-of-order bytes because other connections hold
	// it: aligned FPDUs in order need none, and data that cannot be held counts as never received.
	MinWindow = 64 << 10
	// DefaultStartupTimeout stops a peer that connects and stays silent (RFC 5044, 7.1.2).
	DefaultStartupTimeout = 10 * tick.Second
	// DefaultFirstFPDUTimeout stops an initiator that stays silent after the start-up, which also blocks the
	// responder's consumer, and a program that failed there (RFC 5044, 7.1.2, rules 4 and 10).
	DefaultFirstFPDUTimeout = 5 * tick.Minute
	// DefaultFPDUTimeout stops a peer that leaves an FPDU incomplete, whose bytes are held, and the wait for bytes that
	// never come because the length of an FPDU was corrupted. RFC 9293 has the same default for a sender that
	// retransmits.
	DefaultFPDUTimeout = 5 * tick.Minute
	// DefaultReceiveTimeout ends a message's wait for a receive that the program failed to post (RFC 5041, 7.1).
	// Programs that post in time need less, even on a busy host; rdma_cm programs for InfiniBand fail after 4 s with an
	// rnr_retry of 6.
	DefaultReceiveTimeout = 10 * tick.Second
	// reportDelay is how long a Report waits for an answer of the program, once: later ones do not wait. It is longer
	// than a program on a busy CPU takes to post.
	reportDelay = 200 * tick.Microsecond
	// DefaultCloseTimeout stops a peer that never acknowledges a Terminate or a FIN.
	DefaultCloseTimeout = 5 * tick.Second
)
