package bpf

// Default sizes of the maps. Each is a hard limit in the kernel: a new entry is refused when the map is full. Only the
// map of fragments evicts its oldest entry.
const (
	// DefaultMaxFlows bounds the flows. The map costs 16 bytes for each possible flow and about 100 for each existing
	// flow. The limit keeps a flood of connections from taking unbounded kernel memory.
	DefaultMaxFlows = 1 << 16

	// DefaultMaxListeners bounds the listening addresses; a listener of any address of both families takes two.
	DefaultMaxListeners = 1 << 10

	// DefaultMaxSAs bounds the SAs of the engine, for both directions together.
	DefaultMaxSAs = 1 << 12

	// DefaultMaxFragments bounds the datagrams whose later fragments are expected. A first fragment to a listener
	// creates an entry, so a flood can evict the entries of other peers, whose TCP then retransmits. 8192 datagrams
	// within the 30 s that an entry is valid are enough for misconfigured paths; fragments are not meant to carry load.
	DefaultMaxFragments = 1 << 13

	// DefaultMaxPrefixes bounds each of three sets: the addresses of this host, the peers, and the protected addresses.
	// An entry costs about 100 bytes, allocated when the entry is added. Addresses beyond the limit are refused.
	DefaultMaxPrefixes = 1 << 16

	// DefaultMaxQueues bounds the receive queue numbers that can have a socket.
	DefaultMaxQueues = 256

	// maxEntries bounds the values of Options, because the kernel allocates a part of each map when the map is created.
	maxEntries = 1 << 24
)
