package ring

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// FakeConfig configures a FakeKernel. With the zero value, Take completes the frame that it returns, frames are sent
// only by kicks, as in copy mode, and the rings start at index 0.
type FakeConfig struct {
	Start  uint32 // first index of all rings; near 2^32 to test wrapping
	Budget int    // packets per kick; 0: 32, as Linux
	Manual bool   // frames from Take are completed by CompleteFrames only
	Poller bool   // Take polls the transmit ring itself and needs no kicks, as a busy zero-copy driver

	LateTx bool // as Linux before 6.17: taken descriptors stay in the transmit ring until all visible ones are taken
	// NoTailroom makes zero-copy behave as in Linux without the fix of errTailroom: binds do not check the MTU, and
	// the kernel writes struct skb_shared_info over the end of the first chunk of a received packet of several chunks.
	NoTailroom bool
	MTU        int     // of the device; 0: 1500
	Driver     *Driver // the driver that the kernel reports; nil: it reports none
	// Refuse, if set, is called at each bind. An errno other than 0 makes the bind fail. If nil, a bind with zero-copy
	// fails with EOPNOTSUPP, as on veth.
	Refuse func(zeroCopy, segments bool) unix.Errno
}

// FakeKernel is the kernel's end of one Socket, in ordinary memory. It is deterministic: it acts only when called. Its
// methods may be called from one goroutine other than the Socket's. It can be reopened after its Socket was closed.
type FakeKernel struct {
	cfg FakeConfig

	mu    sync.Mutex
	bound bool
	// zeroCopy says how the socket is bound.
	zeroCopy  bool
	frameSize int // bytes of a received frame per chunk
	mem       area
	fill      consumer[uint64]
	comp      producer[uint64]
	rx        producer[unix.XDPDesc]
	tx        consumer[unix.XDPDesc]
	busy      []bool // per chunk: accepted for transmission and not completed

	sent  []unix.XDPDesc // descriptors of whole packets accepted for transmission
	taken int            // number of descriptors at the start of sent that Take returned
	done  []uint64       // addresses of descriptors that Take returned and that are not completed
	state State
	stats FakeStats
	err   error // first error that Linux would not tolerate
}

// FakeStats counts what a FakeKernel did.
type FakeStats struct {
	Injected     uint64 // packets put in the receive ring
	NoFill       uint64 // packets dropped: too few chunks in the fill ring
	NoFillMulti  uint64 // of these, packets of several chunks
	TooLong      uint64 // packets dropped: several chunks on a socket without segments
	RxFull       uint64 // packets dropped: receive ring full
	LinkDown     uint64 // packets dropped: injected in StateDown or StateGone
	Accepted     uint64 // packets read from the transmit ring
	Lost         uint64 // packets dropped on transmission, in StateBusy
	Taken        uint64 // packets that Take returned
	InvalidDescs uint64 // descriptors in the fill or transmit ring that Check objects to
	Kicks        uint64
}

// NewFakeKernel returns a kernel without a socket.
func NewFakeKernel(cfg FakeConfig) *FakeKernel {
	if cfg.Budget <= 0 {
		cfg.Budget = 32
	}
	if cfg.MTU == 0 {
		cfg.MTU = 1500
	}
	if cfg.Refuse == nil {
		cfg.Refuse = onlyCopy
	}
	return &FakeKernel{cfg: cfg}
}

// OpenFake creates a socket on k. Device and queue of cfg are only reported. If k has an open socket it fails with
// EBUSY, as a queue does.
func OpenFake(cfg Config, k *FakeKernel) (*Socket, error) {
	c, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	d := device{mtu: k.cfg.MTU, driverErr: ErrNotReported}
	if k.cfg.Driver != nil {
		d.driver, d.driverErr = *k.cfg.Driver, nil
	}
	s, err := d.negotiate(&c, k.openSocket)
	if err != nil {
		return nil, fmt.Errorf("ring: fake kernel: %w", err)
	}
	return s, nil
}

// openSocket creates a socket that is bound in the way b.
func (k *FakeKernel) openSocket(c Config, b binding) (*Socket, error) {
	if e := k.cfg.Refuse(b.zeroCopy, b.segments); e != 0 {
		return nil, e
	}
	if b.zeroCopy && !k.fitsMTU(b.segments) {
		return nil, unix.EINVAL
	}
	k.mu.Lock()
	if k.bound {
		k.mu.Unlock()
		return nil, fmt.Errorf("%w (its queue has a socket)", unix.EBUSY)
	}
	k.reset(&c, b.shift())
	k.mem.segments, k.zeroCopy, k.mem.minRxBytes = b.segments, b.zeroCopy, b.minRxBytes()
	k.frameSize = 1<<k.mem.shift - RxHeadroom
	if b.zeroCopy {
		k.frameSize = k.zeroCopyFrame(b.segments)
	}
	a := k.mem
	k.mu.Unlock()
	s := newSocket(c, k, a)
	s.info.Fake, s.info.ZeroCopy = true, b.zeroCopy
	return s, nil
}

// noteBytes is the length of struct skb_shared_info.
const noteBytes = 320

// zeroCopyFrame is the kernel's xsk_pool_get_rx_frame_size: the bytes of a frame that a zero-copy chunk holds.
func (k *FakeKernel) zeroCopyFrame(segments bool) int {
	n := 4096 - 256
	if segments && !k.cfg.NoTailroom {
		n -= noteBytes
	}
	return n &^ 127
}

// fitsMTU is the check of the kernel's xp_assign_dev.
func (k *FakeKernel) fitsMTU(segments bool) bool {
	chunks := 1
	if segments && k.cfg.Driver != nil {
		chunks = k.cfg.Driver.Segments
	} else if segments {
		chunks = MaxFrags
	}
	return k.cfg.NoTailroom || k.cfg.MTU+14+2*4+4 <= chunks*k.zeroCopyFrame(segments)
}

// onlyCopy is a Refuse of a driver without zero-copy mode, such as veth.
func onlyCopy(zeroCopy, _ bool) unix.Errno {
	if zeroCopy {
		return unix.EOPNOTSUPP
	}
	return 0
}

// reset gives k new rings, and reuses its UMEM if it is large enough.
func (k *FakeKernel) reset(c *Config, shift uint8) {
	size := int(c.Frames()) << shift
	umem := k.mem.umem
	if cap(umem) < size {
		umem = make([]byte, size)
	}
	k.mem = area{
		umem: umem[:size], shift: shift,
		budget: min(uint32(k.cfg.Budget), c.KickBudget), lateTx: k.cfg.LateTx,
		fill: fakeRing[uint64](c.FillSize, k.cfg.Start), comp: fakeRing[uint64](c.CompSize,
			k.cfg.Start),
		rx: fakeRing[unix.XDPDesc](c.RxSize, k.cfg.Start), tx: fakeRing[unix.XDPDesc](c.TxSize,
			k.cfg.Start),
	}
	if !k.cfg.Poller {
		*k.mem.tx.flags = needWakeup
	}
	k.fill, k.comp = newConsumer(k.mem.fill), newProducer(k.mem.comp)
	k.rx, k.tx = newProducer(k.mem.rx), newConsumer(k.mem.tx)
	k.busy = make([]bool, c.Frames())
	k.sent, k.taken, k.done = k.sent[:0], 0, k.done[:0]
	k.bound, k.state, k.stats, k.err = true, StateOK, FakeStats{}, nil
}

func fakeRing[T any](size, start uint32) shared[T] {
	var words [3]struct {
		v uint32
		_ [60]byte // one cache line each
	}
	words[0].v, words[1].v = start, start
	return shared[T]{prod: &words[0].v, cons: &words[1].v, flags: &words[2].v,
		desc: make([]T, size)}
}

// SetState sets the state for later kicks. StateBusy drops one frame per kick but completes it; other states except
// StateOK leave all frames in the ring. StateDown and StateGone drop injected frames.
func (k *FakeKernel) SetState(s State) {
	k.mu.Lock()
	k.state = s
	k.mu.Unlock()
}

// FakeStats returns the counters.
func (k *FakeKernel) FakeStats() FakeStats {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.stats
}

// Check returns the first violation of the kernel's rules: a chunk filled during its transmission, an address outside
// the UMEM or not aligned to a chunk, a frame without end.
func (k *FakeKernel) Check() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err
}

func (k *FakeKernel) invalid(format string, args ...any) {
	k.stats.InvalidDescs++
	if k.err == nil {
		k.err = fmt.Errorf("ring: fake kernel: "+format, args...)
	}
}

var errnos = [...]unix.Errno{0, unix.EAGAIN, unix.EBUSY, unix.ENOBUFS, unix.ENETDOWN, unix.ENXIO,
	unix.EBADF, unix.EIO}

// kickTx does what sendto(2) does in Linux, or what the state demands.
func (k *FakeKernel) kickTx() unix.Errno {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stats.Kicks++
	switch k.state {
	case StateOK:
		return k.accept(k.cfg.Budget)
	case StateBusy:
		k.dropOne()
	}
	return errnos[min(int(k.state), len(errnos)-1)]
}

func (k *FakeKernel) kickRx()          {}
func (k *FakeKernel) poll() bool       { return false }
func (k *FakeKernel) enableInterrupt() {}

// wait does not sleep until a packet arrives. With an extra descriptor it sleeps until that is readable, at most a
// millisecond.
func (k *FakeKernel) wait(timeout time.Duration, extra int) Ready {
	if extra < 0 {
		runtime.Gosched()
		return 0
	}
	if timeout < 0 || timeout > time.Millisecond {
		timeout = time.Millisecond
	}
	fds := [1]unix.PollFd{{Fd: int32(extra), Events: unix.POLLIN}}
	if pollUntil(fds[:], timeout) > 0 {
		return ReadyExtra
	}
	return 0
}

func (k *FakeKernel) statistics() (unix.XDPStatistics, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	st := unix.XDPStatistics{
		Rx_dropped: k.stats.TooLong, Rx_ring_full: k.stats.RxFull,
		Rx_fill_ring_empty_descs: k.stats.NoFill, Tx_invalid_descs: k.stats.InvalidDescs,
	}
	if !k.zeroCopy {
		// As in Linux: rx_dropped also counts frames without a chunk, but rx_fill_ring_empty_descs only those of them
		// that need one chunk.
		st.Rx_dropped += k.stats.NoFill
		st.Rx_fill_ring_empty_descs -= k.stats.NoFillMulti
	}
	return st, nil
}

func (k *FakeKernel) descriptor() int { return -1 }

func (k *FakeKernel) close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.bound {
		return errors.New("ring: fake kernel: closed twice")
	}
	k.bound = false
	return nil
}

// pendingTx returns the number of descriptors in the transmit ring.
func (k *FakeKernel) pendingTx() uint32 { return atomic.LoadUint32(k.tx.prod) - k.tx.head }
