package ddp

// Limits of the package, each with the attack or the exhaustion that it stops.
const (
	// MaxRegions bounds the memory regions of one table: registration is what a local
	// consumer can repeat without end (RFC 5042, 6.4). A table holds four times as many
	// slots at most.
	MaxRegions = 1 << 20

	// MaxDomains bounds the protection domains of one table.
	MaxDomains = 1 << 16

	// MaxRegionLen is the longest region in octets, 2^47: what a process can address,
	// and far enough from 2^64 that no sum of offset and length of ours wraps.
	MaxRegionLen = 1 << 47

	// MaxMessage is the longest message in octets (RFC 5041, 5.2): beyond it MO wraps, and what a peer goes
	// on sending would overwrite the message's beginning and complete as one of a few octets.
	MaxMessage = 1<<32 - 1

	// maxDraws bounds the draws for an unused STag: with MaxRegions of 2^32 values
	// taken, 16 draws fail together once in 10^57; more means that the source is broken.
	maxDraws = 16

	// minSlots is the size of an empty table.
	minSlots = 64
)
