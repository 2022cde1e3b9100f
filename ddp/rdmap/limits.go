package rdmap

import "xwarp/ddp"

// Limits and sizes of the package. A limit that stops an attack or exhaustion names it.
const (
	// MaxDepth bounds both queues of a queue pair, and a shared receive queue: their memory is allocated in advance.
	MaxDepth = 1 << 16

	// MaxSGE bounds the pieces of one work request, and so the time of one copy.
	MaxSGE = 16

	// MaxInline bounds inline data, which costs depth times its size.
	MaxInline = 1 << 12

	// MaxIRD and MaxORD bound the outstanding Reads and atomics of each direction. The peer can fill the inbound queue
	// up to IRD (RFC 5040, 8.1.2, item 7; RFC 5042, 6.4.5). Beyond it the peer gets a Terminate. RFC 6581 transmits 14
	// bits, of which 0x3FFF has another meaning.
	MaxIRD = 1 << 12
	MaxORD = 1 << 12

	// MaxMessage is the longest message in bytes (RFC 5041, 5.2).
	MaxMessage = ddp.MaxMessage

	// MinULPDU is the smallest MULPDU that MPA gives (RFC 5044, 4.5). Every message of fixed length fits.
	MinULPDU = 128

	// termPayload is the size of the one buffer of queue 2: the longest Terminate behind its DDP header. A peer cannot
	// make this side keep more.
	termPayload = 4 + 2 + 18 + ReadRequestLen

	// ackSlack is how many answered requests may wait for TCP's acknowledgement, as a multiple of IRD. A correct peer
	// acknowledges a response before it uses the slot again.
	ackSlack = 1
)
