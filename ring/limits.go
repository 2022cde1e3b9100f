package ring

import "time"

// Facts of the kernel's AF_XDP interface.
const (
	// bytes per UMEM chunk: the largest that the kernel accepts in aligned mode
	ChunkSize  = 4096
	chunkShift = 12 // log2 ChunkSize
	smallShift = 11 // log2 of the smallest chunk that the kernel accepts
	// XDP_PACKET_HEADROOM: a received frame starts this number of bytes after the start of its chunk
	RxHeadroom  = 256
	RxChunkData = ChunkSize - RxHeadroom // bytes of a received frame that one chunk of ChunkSize holds
	// bytes at the end of each chunk of a zero-copy socket with segments, where the kernel keeps struct
	// skb_shared_info: 320 bytes with 64-bit processors and 17 fragments, rounded up to a multiple of 128
	rxTailroom = 384
	ethHeader  = 14              // bytes; the minimum length of a frame
	vlanHeader = ethHeader + 2*4 // the longest Ethernet header that the steering program passes: with two VLAN tags
)

// Limits of the fields of Config, and of the queues that a program uses by default.
const (
	// MaxFrags is the maximum number of chunks of a received packet: the kernel's MAX_SKB_FRAGS + 1, 69,120 bytes.
	// Longer chains are dropped, so that a broken driver cannot collect all frames in one packet.
	MaxFrags = 18
	// MaxTxSlot is the maximum number of chunks of a transmit slot: the kernel refuses frames of 17 or more
	// descriptors.
	MaxTxSlot = 16
	// MaxFrames is the maximum number of chunks of a socket (2 GiB): UMEM is pinned memory, and offsets in it have 32
	// bits.
	MaxFrames = 1 << 19
	// MaxRingSize is the maximum number of entries of a ring (16 MiB of descriptors).
	MaxRingSize = 1 << 20
	// MaxKickBudget is the maximum number of packets per transmit system call. The Go scheduler does not know that the
	// thread is in the call, so a stop-the-world waits for its end: half a millisecond, at 2 us per packet.
	MaxKickBudget = 256
	// MaxKicks is the maximum number of transmit system calls per Flush, so that Flush ends soon even if the kernel
	// takes few packets per call.
	MaxKicks = 64
	// MaxQueues is the maximum number of queues for which a program should create sockets by default: an adapter may
	// have hundreds, and each needs a thread and 20 MiB of UMEM.
	MaxQueues = 64
)

// Defaults of zero fields of Config.
const (
	DefaultRxFrames   = 4096
	DefaultTxSlots    = 1024
	DefaultKickBudget = 128
	DefaultKicks      = 8
	// a closed socket frees its queue some 20 ms later, or after seconds if all CPUs are busy
	DefaultBindTimeout = 5 * time.Second
	bindRetry          = 2 * time.Millisecond
)
