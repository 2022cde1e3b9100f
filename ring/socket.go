package ring

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

const needWakeup = unix.XDP_RING_NEED_WAKEUP

// kernel is the other end of the rings: Linux or a FakeKernel.
type kernel interface {
	kickTx() unix.Errno                       // process the transmit ring
	kickRx()                                  // process the fill ring
	wait(timeout time.Duration, fd int) Ready // sleep until a packet arrives or fd is readable
	statistics() (unix.XDPStatistics, error)  // XDP_STATISTICS
	poll() bool                               // receive pending frames of the queue; false without busy polling
	enableInterrupt()                         // of the queue, before wait; does nothing without busy polling
	close() error                             // release everything
	descriptor() int                          // file descriptor or -1
}

// area is the memory shared by Socket and kernel.
type area struct {
	umem       []byte
	fill       shared[uint64]
	comp       shared[uint64]
	rx, tx     shared[unix.XDPDesc]
	hugePage   bool
	segments   bool   // frames may span several chunks
	shift      uint8  // log2 of the bytes of a chunk
	minRxBytes uint32 // bytes of a received frame that each chunk holds at least
	budget     uint32 // maximum packets per transmit system call
	lateTx     bool   // the kernel may take descriptors and move the consumer index of the transmit ring later
}

// Socket is one AF_XDP socket, bound to one queue of one device, with its own UMEM. It is not safe for concurrent use.
type Socket struct {
	cfg    Config
	k      kernel
	umem   []byte
	frames frames

	fill producer[uint64]
	rx   consumer[unix.XDPDesc]
	tx   producer[unix.XDPDesc]
	comp consumer[uint64]

	chain Packet // the beginning of a packet whose last piece has not arrived
	skip  bool   // dropping the rest of a packet
	offer offer

	lateTx   bool      // see area
	segments bool      // see area
	queue    []pending // sent but not yet in the transmit ring: a FIFO of TxSlots entries
	qhead    uint32
	qtail    uint32
	txBase   uint64 // offset of the first slot

	info  Info
	stats Stats
}

// pending is a slot that waits for room in the transmit ring.
type pending struct{ slot, n uint32 }

// Info describes an open socket.
type Info struct {
	Ifindex    int
	Queue      uint32
	ZeroCopy   bool   // as reported by XDP_OPTIONS
	NoZeroCopy error  // why ModeAuto uses copy mode; nil with zero-copy, or if copy mode was requested
	Fault      error  // known fault of the driver's requested zero-copy mode, or nil
	Segments   uint32 // chunks that a received frame may span
	HugePages  bool   // the UMEM lies in 2 MiB pages
	Fake       bool   // on a FakeKernel
	Blocks     bool   // the Port accepts blocks; a Socket never does
	RxFrames   uint32 // chunks for reception
	TxSlots    uint32
	TxRoom     int    // maximum frame length of a slot in bytes
	RxRoom     int    // maximum length of a received frame in bytes
	KickBudget uint32 // packets per transmit system call, as accepted by the kernel
}

// Stats counts since Open. Packets are Ethernet frames.
type Stats struct {
	RxPackets, RxBytes uint64
	RxOversize         uint64 // packets of more than MaxFrags chunks, dropped whole
	RxBadDesc          uint64 // invalid receive descriptors, or of chunks not in the fill ring; dropped
	RxOffered          uint64 // target number of the kernel's receive chunks while frames flow; not a counter
	RxGrown            uint64 // times that RxOffered rose
	TxPackets, TxBytes uint64 // handed to the kernel
	TxCompleted        uint64 // reported complete
	TxExhausted        uint64 // AllocTx calls without a free slot
	TxInvalid          uint64 // frames dropped by Send: invalid length, or no member of a Group may send
	Kicks              uint64 // transmit system calls
	Again              uint64 // of Kicks, those that ended with EAGAIN
	Busy               uint64 // of Kicks, those that ended with EBUSY: the device dropped a frame
	NoBuffers          uint64 // of Kicks, those that ended with ENOBUFS
	Down               uint64 // of Kicks, those that ended with ENETDOWN
	Gone               uint64 // of Kicks, those that ended with ENXIO or ENODEV
	OtherErrors        uint64
	LastErrno          unix.Errno // latest errno counted in OtherErrors
	Waits              uint64
	Polls              uint64 // calls that polled the NAPI instance, see Socket.BusyPoll
	Misuse             uint64 // operations on chunks of another owner, refused

	// XDP_STATISTICS; zero when the socket is closed.
	KernelRxDropped     uint64 // frames longer than a chunk on a socket without segments
	KernelRxInvalid     uint64 // invalid descriptors in the fill ring
	KernelTxInvalid     uint64 // invalid descriptors in the transmit ring
	KernelRxRingFull    uint64
	KernelFillRingEmpty uint64 // frames without a chunk; with zero-copy, times that the driver found none
	KernelTxRingEmpty   uint64
}

// newSocket returns the socket of kernel k whose rings and UMEM are in a. All its receive chunks that fit the fill ring
// are in it.
func newSocket(c Config, k kernel, a area) *Socket {
	if !a.segments {
		c.MaxFrags = 1
	}
	s := &Socket{
		cfg: c, k: k, umem: a.umem, frames: newFrames(&c, a.shift),
		fill: newProducer(a.fill), rx: newConsumer(a.rx), tx: newProducer(a.tx),
		comp:   newConsumer(a.comp),
		lateTx: a.lateTx, segments: a.segments,
		queue:  make([]pending, powerOfTwo(c.TxSlots)),
		offer:  newOffer(c.RxFrames),
		txBase: uint64(c.RxFrames) << a.shift,
	}
	s.info = Info{
		Ifindex: c.Ifindex, Queue: c.Queue, Segments: c.MaxFrags,
		HugePages: a.hugePage,
		RxFrames:  c.RxFrames, TxSlots: c.TxSlots,
		TxRoom: int(c.TxSlot << a.shift), RxRoom: int(c.MaxFrags * a.minRxBytes),
		KickBudget: a.budget,
	}
	s.refill(c.RxFrames)
	return s
}

// Fd returns the file descriptor for the XSKMAP, or -1 for a fake or closed socket.
func (s *Socket) Fd() int {
	if s.k == nil {
		return -1
	}
	return s.k.descriptor()
}

// Info returns the properties of the open socket.
func (s *Socket) Info() Info { return s.info }

// Stats returns the counters. It makes one system call to read those of the kernel.
func (s *Socket) Stats() Stats {
	st := s.stats
	st.Misuse = s.frames.misuse
	st.RxOffered, st.RxGrown = uint64(s.offer.target), s.offer.grown
	if s.info.ZeroCopy {
		st.RxOffered = uint64(s.offer.all)
	}
	if s.k == nil {
		return st
	}
	if ks, err := s.k.statistics(); err == nil {
		s.countDrops(&ks)
		st.KernelRxDropped, st.KernelFillRingEmpty = s.stats.KernelRxDropped,
			s.stats.KernelFillRingEmpty
		st.KernelRxInvalid, st.KernelTxInvalid = ks.Rx_invalid_descs, ks.Tx_invalid_descs
		st.KernelRxRingFull, st.KernelTxRingEmpty = ks.Rx_ring_full, ks.Tx_ring_empty_descs
	}
	return st
}

// countDrops separates two causes that the kernel's statistics mix. In copy mode rx_dropped counts every frame without
// a chunk, and rx_fill_ring_empty_descs those of them that need one chunk only (net/xdp/xsk.c, __xsk_rcv). rx_dropped
// also counts frames that are too long, which a socket with segments does not have.
func (s *Socket) countDrops(ks *unix.XDPStatistics) {
	empty, other := ks.Rx_fill_ring_empty_descs, ks.Rx_dropped
	switch {
	case s.info.ZeroCopy:
	case s.segments:
		empty, other = max(empty, other), 0
	default:
		other -= min(other, empty)
	}
	// The kernel may count a frame between its two readings: max keeps the counters from falling.
	st := &s.stats
	st.KernelFillRingEmpty = max(st.KernelFillRingEmpty, empty)
	st.KernelRxDropped = max(st.KernelRxDropped, other)
}

// Census returns the number of chunks of each owner.
func (s *Socket) Census() Census { return s.frames.count }

// Audit returns an error unless every chunk has exactly one owner and the rings agree with the owners. It costs about a
// nanosecond per chunk and makes no system call.
func (s *Socket) Audit() error {
	if err := s.frames.audit(); err != nil {
		return err
	}
	if s.k == nil {
		return nil
	}
	c := &s.frames.count
	if n := s.fill.used(); n > c[OwnerFill] {
		return fmt.Errorf("ring: audit: %d chunks in the fill ring, the account says %v", n, *c)
	}
	if n := s.tx.used(); n > c[OwnerCompletion] && !s.lateTx {
		return fmt.Errorf("ring: audit: %d descriptors in the transmit ring, the account says %v",
			n, *c)
	}
	if n := s.qtail - s.qhead; n*s.cfg.TxSlot > c[OwnerTx] {
		return fmt.Errorf("ring: audit: %d slots wait to be flushed, the account says %v", n, *c)
	}
	if s.chain.n > c[OwnerRx] {
		return fmt.Errorf("ring: audit: an unfinished packet of %d chunks, the account says %v",
			s.chain.n, *c)
	}
	return nil
}

// Close unmaps the UMEM and the rings and closes the descriptor. The kernel frees the queue some milliseconds later.
// All Packets and TxBufs become invalid: accessing their bytes crashes. Later calls of any method do nothing.
func (s *Socket) Close() error {
	if s.k == nil {
		return nil
	}
	k := s.k
	s.k, s.umem = nil, nil
	// Rings without entries, which every method finds both empty and full.
	var zero uint32
	s.fill = producer[uint64]{shared: shared[uint64]{&zero, &zero, &zero, nil}}
	s.comp = consumer[uint64]{shared: s.fill.shared}
	s.tx = producer[unix.XDPDesc]{shared: shared[unix.XDPDesc]{&zero, &zero, &zero, nil}}
	s.rx = consumer[unix.XDPDesc]{shared: s.tx.shared}
	s.qhead, s.qtail, s.chain, s.skip = 0, 0, Packet{}, false
	s.frames = newFrames(&s.cfg, s.frames.shift)
	return k.close()
}
