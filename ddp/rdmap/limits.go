package rdmap

import "xwarp/ddp"

// Limits of the package, each with the attack or the exhaustion that it stops.
const (
	// MaxDepth bounds both queues of a queue pair and a shared receive queue: their memory
	// is allocated when they are made.
	MaxDepth = 1 << 16

	// MaxSGE bounds the pieces of one work request, and so the time of one copy.
	MaxSGE = 16

	// MaxInline bounds inline data, which costs depth times its size.
	MaxInline = 1 << 12

	// MaxIRD and MaxORD bound outstanding Reads and atomics in each direction: the peer
	// fills the inbound queue at will up to IRD (RFC 5040, 8.1.2, item 7; RFC 5042, 6.4.5).
	// Beyond it the peer gets a Terminate. RFC 6581 carries 14 bits, of which 0x3FFF means
	// something else.
	MaxIRD = 1 << 12
	MaxORD = 1 << 12

	// MaxMessage is the longest message in octets (RFC 5041, 5.2).
	MaxMessage = ddp.MaxMessage

	// MinULPDU is the smallest room that MPA offers (RFC 5044, 4.5); every message of
	// fixed length fits.
	MinULPDU = 128

	// termPayload is what the one buffer of queue 2 holds: the longest Terminate behind its
	// DDP header, so that a peer cannot make us keep more.
	termPayload = 4 + 2 + 18 + ReadRequestLen

	// ackSlack is how many answered requests may wait for TCP's acknowledgement, as a
	// multiple of IRD. An honest peer acknowledges a response before it uses the slot
	// again; one that does not is stopped here.
	ackSlack = 1
)
