package ddp

// Limits and sizes of the package. The comment of a limit that stops an attack or an exhaustion says which.
const (
	// MaxRegions bounds the valid regions and bindings of one table together, and also its windows: a local consumer
	// can repeat registration without end (RFC 5042, 6.4). A table has at most twice as many slots.
	MaxRegions = 1 << 20

	// MaxDomains bounds the protection domains of one table.
	MaxDomains = 1 << 16

	// MaxRegionLen is the longest region in bytes, 2^47. A process cannot address more, and no sum of an offset and a
	// length here wraps at 2^64.
	MaxRegionLen = 1 << 47

	// MaxMessage is the longest message in bytes (RFC 5041, 5.2). Beyond it MO wraps: a peer that sends more would
	// overwrite the beginning of the message, and complete it with a length of a few bytes.
	MaxMessage = 1<<32 - 1

	// maxDraws bounds the attempts to draw an unused STag. If MaxRegions of the 2^32 values are in use, 16 attempts in
	// a row fail once in 10^57 cases. If they do, the source is broken.
	maxDraws = 16

	// minSlots is the size of an empty table.
	minSlots = 64
)
