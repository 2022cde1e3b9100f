// Package ring sends and receives Ethernet frames through AF_XDP sockets, with its own UMEM, its own account
// of who owns each frame, and its own four rings.
//
// # Frames
//
// The UMEM of a socket is cut in chunks of 4096 bytes. The first RxFrames chunks receive; the rest form
// TxSlots transmit slots of TxSlot adjacent chunks, so that a jumbo frame is one contiguous []byte for who
// writes it. The two parts never mix: a receiver that holds all its frames cannot stop the transmitter, nor
// the other way round.
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
// In zero-copy mode the device's own ring takes its entries from RxFrames: have at least twice as many chunks as
// ethtool -g shows, or the fill ring is empty most of the time, which costs system calls and frames.
//
// The kernel's part of the account is the driver's word there. A driver that delivers a chunk twice makes two
// readers of it, or a reader and the device: what was checked changes while it is read. Descriptors of chunks that the
// kernel does not have are dropped and counted (Stats.RxBadDesc), but one of a chunk that lies in the fill ring looks
// like any other. So ModeAuto keeps away from drivers that are known to do it: [Driver.ZeroCopyFault].
//
// # Rings
//
// Fill and transmit are written by us and read by the kernel, receive and completion the other way round. Indices are
// 32 bits wide and wrap. A producer publishes its index with a release store after the descriptors, a consumer
// loads it with acquire before reading them.
//
// # Threads
//
// A Socket belongs to one thread: no method may run beside another.
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
