package bpf

// Default sizes of the maps. Every one is a hard limit in the kernel: what does not fit is refused, never evicted, but
// for the fragments, where the oldest entry makes room.
const (
	// DefaultMaxFlows bounds the exact flows. The table costs 16 octets per possible and about 100 per
	// existing flow. It stops a flood of connections from taking kernel memory without end.
	DefaultMaxFlows = 1 << 16

	// DefaultMaxListeners bounds the listening addresses; a listener of any address of both families takes two.
	DefaultMaxListeners = 1 << 10

	// DefaultMaxSAs bounds the SAs that the engine receives with.
	DefaultMaxSAs = 1 << 12

	// DefaultMaxFragments bounds the datagrams whose later fragments are expected. Anyone who can send a
	// first fragment to a listener makes an entry, so a flood pushes out honest ones, which TCP then repeats.
	// 8192 datagrams within the 30 s that an entry is valid serve misconfigured paths, not a load.
	DefaultMaxFragments = 1 << 13

	// DefaultMaxPrefixes bounds the addresses of this host, and the prefixes of peers. An entry costs about
	// 100 octets, of which nothing is taken before it exists; a host that has more addresses is refused those
	// beyond.
	DefaultMaxPrefixes = 1 << 16

	// DefaultMaxQueues bounds the receive queue numbers that can have a socket.
	DefaultMaxQueues = 256

	// DefaultLiveSlots is how many live frames a worker can queue for one run.
	DefaultLiveSlots = 512

	// maxEntries bounds what the options may ask for: the kernel allocates some of it at once.
	maxEntries = 1 << 24
)
