package iwarp

import "xwarp/tcp/tick"

const (
	// DefaultWindow is what one connection lets the peer have under way: enough for 10 Gbit/s at 3 ms. Only
	// what cannot be placed on arrival takes memory of that size.
	DefaultWindow = 4 << 20
	// MinWindow is the number of bytes that the peer may have under way although the worker has no memory left for
	// bytes out of order, because other connections hold it: aligned FPDUs in order need none, and what cannot be held
	// counts as never received.
	MinWindow = 64 << 10
	// DefaultStartupTimeout stops a peer that connects and says nothing (RFC 5044, 7.1.2).
	DefaultStartupTimeout = 10 * tick.Second
	// DefaultFirstFPDUTimeout stops an initiator that connects and then says nothing, for which the
	// responder's consumer has to be silent, too, and a program that has failed there (RFC 5044, 7.1.2, rules
	// 4 and 10).
	DefaultFirstFPDUTimeout = 5 * tick.Minute
	// DefaultFPDUTimeout stops a peer that leaves an FPDU half sent, whose bytes are held meanwhile, and ends
	// the wait for bytes that nobody sends, because the length of an FPDU was changed on the way. As long,
	// and by RFC 9293's default, a sender tries that has lost segments to send again.
	DefaultFPDUTimeout = 5 * tick.Minute
	// DefaultReceiveTimeout ends a message's wait for a receive that the program forgot to post (RFC 5041, 7.1). A
	// program that posts in time needs less, also on a busy host; rdma_cm's programs for InfiniBand fail after 4 s
	// with an rnr_retry of 6.
	DefaultReceiveTimeout = 10 * tick.Second
	// reportDelay is how long a Report waits for an answer of the program: once, for the next ones do not wait then. It
	// is more than a program on a busy processor takes to post.
	reportDelay = 200 * tick.Microsecond
	// DefaultCloseTimeout stops a peer that never acknowledges a Terminate or a FIN.
	DefaultCloseTimeout = 5 * tick.Second
)
