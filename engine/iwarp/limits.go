package iwarp

import "xwarp/tcp/tick"

const (
	// DefaultWindow is the maximum number of bytes in flight per connection: enough for 10 Gbit/s at 3 ms. Only data
	// that cannot be placed on arrival takes memory.
	DefaultWindow = 4 << 20
	// MinWindow is the smallest window to announce, unless Config.Window is smaller. It is announced even if other
	// connections use all of the worker's memory for out-of-order bytes. Aligned FPDUs that arrive in order need none
	// of it, and data that cannot be held counts as never received.
	MinWindow = 64 << 10
	// DefaultStartupTimeout ends a connection whose peer stays silent after connecting (RFC 5044, 7.1.2).
	DefaultStartupTimeout = 10 * tick.Second
	// DefaultFirstFPDUTimeout ends a connection whose initiator stays silent after the start-up, for example because
	// its program failed. The responder may not send before the initiator (RFC 5044, 7.1.2, rules 4 and 10).
	DefaultFirstFPDUTimeout = 5 * tick.Minute
	// DefaultFPDUTimeout ends a connection whose FPDU stays incomplete, because the received bytes use memory. Either
	// the peer stopped sending, or the length of the FPDU was corrupted, so that the rest never arrives. RFC 9293's
	// default for the user timeout of a sender is the same.
	DefaultFPDUTimeout = 5 * tick.Minute
	// DefaultReceiveTimeout ends a message's wait for a receive that the program failed to post (RFC 5041, 7.1).
	// Programs that post in time need less, even on a busy host; rdma_cm programs for InfiniBand fail after 4 s with an
	// rnr_retry of 6.
	DefaultReceiveTimeout = 10 * tick.Second
	// reportDelay is how long a Report (ddp/rdmap/private.go) waits for a message of this end, to share a segment with
	// it. If no message is posted in that time, later Reports do not wait. A program on a busy CPU posts its answer
	// sooner.
	reportDelay = 200 * tick.Microsecond
	// DefaultCloseTimeout ends a connection whose peer does not answer a Terminate or a FIN.
	DefaultCloseTimeout = 5 * tick.Second
)
