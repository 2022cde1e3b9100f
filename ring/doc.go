// Package ring sends and receives Ethernet frames through AF_XDP sockets. It manages the UMEM, the owner of each frame
// and the four rings.
//
// # Frames
//
// The UMEM of a socket is cut in chunks of 4096 bytes, or of 2048 bytes in copy mode where these hold every frame that
// the device's MTU allows. The first RxFrames chunks receive; the rest form TxSlots transmit slots of TxSlot adjacent
// chunks, so that a jumbo frame is one contiguous []byte for the writer. The two parts never mix: a receiver that holds
// all its frames cannot stop the transmitter, and vice versa.
//
// Every chunk has one owner, and one call, Audit, asserts that none is lost or owned twice:
//
//	       Refill             kernel, Recv
//	Free ----------> Fill ------------------> Rx
//	 ^                                         |
//	 +----------------- Release ---------------+
//
//	       AllocTx            Flush                      kernel, Reap
//	Free ----------> Tx ----------------> Completion ------------------> Free
//	 ^               |  (Send queues)
//	 +-- CancelTx ---+
//
// While frames flow, the kernel has only some of the receive chunks, so that these stay in the processor's cache;
// Stats.RxOffered is their number. The others are a reserve for bursts: an idle socket offers all to the kernel.
//
// In zero-copy mode the device's own ring takes its entries from RxFrames. Set RxFrames to at least twice the ring size
// that ethtool -g shows. Otherwise the fill ring is empty most of the time, which costs system calls and frames.
//
// In zero-copy mode the driver chooses the chunk of each received frame. If a driver delivers a chunk twice, it has two
// readers, or a reader and the device: bytes change after their checksum was verified. Descriptors of chunks that the
// kernel does not own are dropped and counted (Stats.RxBadDesc). But if the chunk is already in the fill ring again,
// the second delivery looks valid. So ModeAuto avoids zero-copy with drivers known to do this: [Driver.ZeroCopyFault].
//
// # Rings
//
// This package writes the fill and transmit rings, the kernel the receive and completion rings. Indices are
// 32 bits wide and wrap. A producer publishes its index with a release store after the descriptors, a consumer
// loads it with acquire before reading them.
//
// # Threads
//
// A Socket belongs to one thread: its methods must not run concurrently.
//
// # Why not github.com/asavie/xdp
//
// Version 0.3.3 may give a received frame back to the kernel while a TCP must still hold it, panics when the
// link goes down, and does not release its queue on Close. It stays as the independent implementation in
// this package's tests, where frames that one sends are received by the other, and as a baseline of
// `xwarp bench matrix`.
//
// # Without a kernel
//
// OpenFake runs the same Socket on a FakeKernel in ordinary memory: deterministic, no privileges. Decorators
// (pcapng.Port, and those of packages gso, live and monitor) wrap anything that is a Port.
package ring
