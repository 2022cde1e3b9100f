package ring

import "time"

// Facts of the kernel's AF_XDP interface.
const (
	// bytes per UMEM chunk: the largest that the kernel takes without the unaligned mode
	ChunkSize  = 4096
	chunkShift = 12 // log2 ChunkSize
	smallShift = 11 // log2 of the smallest chunk that the kernel takes
	// XDP_PACKET_HEADROOM: the kernel writes a received frame that far into its chunk
	RxHeadroom  = 256
	RxChunkData = ChunkSize - RxHeadroom // bytes of a received frame that one chunk of ChunkSize holds
	ethHeader   = 14                     // bytes; a shorter frame is no Ethernet frame
)

// Limits, each with what it stops.
const (
	// MaxFrags is the most chunks that one received packet may span: the kernel's MAX_SKB_FRAGS + 1, 69,120 bytes. A
	// longer chain is dropped whole, so that a broken driver cannot gather all frames in one packet.
	MaxFrags = 18
	// MaxTxSlot is the most chunks of a transmit slot: the kernel refuses frames of 17 descriptors and more.
	MaxTxSlot = 16
	// MaxFrames is the most chunks of one socket (2 GiB): UMEM is pinned memory, and offsets into it fit 32 bits.
	MaxFrames = 1 << 19
	// MaxRingSize is the most entries of one ring (16 MiB of descriptors).
	MaxRingSize = 1 << 20
	// MaxKickBudget is the most packets of one transmit system call. The call keeps its processor from the Go
	// scheduler, so a stop-the-world waits for it: at 2 us a packet, half a millisecond.
	MaxKickBudget = 256
	// MaxKicks is the most transmit system calls of one Flush, so that Flush ends although the peer never does.
	MaxKicks = 64
	// MaxQueues is the most queues of a device for which a program should make sockets by itself: an adapter
	// may have hundreds, and each takes a thread and 20 MiB of UMEM.
	MaxQueues = 64
)

// Defaults for fields of Config that are zero.
const (
	DefaultRxFrames   = 4096
	DefaultTxSlots    = 1024
	DefaultKickBudget = 128
	DefaultKicks      = 8
	// a closed socket frees its queue some 20 ms later, and after seconds on processors that are all busy
	DefaultBindTimeout = 5 * time.Second
	bindRetry          = 2 * time.Millisecond
)
