package ring

import (
	"cmp"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// binding is one way to bind a socket.
type binding struct {
	zeroCopy bool
	segments bool // XDP_USE_SG: a frame may span several chunks
	small    bool // chunks of 2,048 bytes
}

// shift returns log2 of the bytes of a chunk.
func (b binding) shift() uint8 {
	if b.small {
		return smallShift
	}
	return chunkShift
}

// minRxBytes returns the number of bytes of a received frame that each chunk holds at least. Linux without the fix of
// errTailroom stores bytes of the frame in rxTailroom too.
func (b binding) minRxBytes() uint32 {
	n := uint32(1)<<b.shift() - RxHeadroom
	if b.zeroCopy && b.segments {
		n -= rxTailroom
	}
	return n
}

// flags returns the flags for struct sockaddr_xdp.
func (b binding) flags() uint16 {
	f := uint16(unix.XDP_USE_NEED_WAKEUP)
	if b.segments {
		f |= unix.XDP_USE_SG
	}
	if b.zeroCopy {
		return f | unix.XDP_ZEROCOPY
	}
	return f | unix.XDP_COPY
}

// device holds the properties that decide how a socket can be bound.
type device struct {
	mtu       int
	driver    Driver
	driverErr error // why driver is unknown, or nil
}

// opener creates a socket and binds it in the given way: openLinux or FakeKernel.openSocket.
type opener func(Config, binding) (*Socket, error)

// negotiate opens a socket with the best mode that c allows and the device supports. ModeAuto does not use a zero-copy
// mode known to be faulty. If the queue is busy, negotiate tries no other mode. Every attempt uses a new socket,
// because a UMEM keeps the flags of a failed bind.
func (d *device) negotiate(c *Config, open opener) (*Socket, error) {
	copied := binding{segments: true, small: d.fitsSmallChunks(c)}
	if c.Mode == ModeCopy {
		return open(*c, copied)
	}
	s, why := d.openZeroCopy(c, open)
	if why == nil || errors.Is(why, unix.EBUSY) {
		return s, why
	}
	if c.Mode == ModeZeroCopy {
		return nil, fmt.Errorf("%w (ring mode auto copies instead)", why)
	}
	s, err := open(*c, copied)
	if err == nil {
		s.info.NoZeroCopy = why
	}
	return s, err
}

// openZeroCopy binds with zero-copy, or returns why it may not or cannot. It asks for XDP_USE_SG only if a frame may
// not fit one chunk, because a driver whose zero-copy supports one buffer per frame refuses the flag.
func (d *device) openZeroCopy(c *Config, open opener) (*Socket, error) {
	b := binding{zeroCopy: true, segments: c.TxSlot > 1 || d.mtu > oneChunkMTU}
	if why := d.missingFeature(b); why != nil {
		return nil, why
	}
	fault := d.driver.ZeroCopyFault()
	if fault == nil && d.mtu > oneChunkMTU {
		reserved, err := d.reservesTailroom(c, open)
		if err != nil {
			return nil, d.explainError(b, err)
		}
		if !reserved {
			fault = errTailroom
		}
	}
	if fault != nil && c.Mode == ModeAuto {
		return nil, fault
	}
	s, err := open(*c, b)
	if err != nil {
		return nil, d.explainError(b, err)
	}
	s.info.Fault = fault
	return s, nil
}

// longestHeader is the number of bytes that the kernel's bind adds to the MTU for the longest frame: Ethernet header,
// two VLAN tags and FCS.
const longestHeader = vlanHeader + 4

// oneChunkMTU is the largest MTU at which a zero-copy chunk holds every frame, by the rule of the kernel's bind.
const oneChunkMTU = RxChunkData - longestHeader

// errTailroom is the fault of zero-copy sockets with segments before Linux's "xsk: respect tailroom for ZC setups".
// Linux 7.0 has that fix, and so have the stable kernels of 22 April 2026.
var errTailroom = fmt.Errorf("this kernel's zero-copy writes its own data into received frames of several chunks: "+
	"lower the MTU to %d, or install a kernel with the fix of April 2026 (Linux 6.12.83, 6.18.24, 7.0)",
	oneChunkMTU)

// reservesTailroom reports whether the kernel keeps the end of each chunk free for struct skb_shared_info, which
// describes a frame of several chunks. The device's MTU must be above oneChunkMTU. Such a kernel then refuses a socket
// without segments, with EINVAL and before it calls the driver. Other kernels, and drivers that support several chunks
// per frame, have no such rule.
func (d *device) reservesTailroom(c *Config, open opener) (bool, error) {
	probe, err := Config{Ifindex: c.Ifindex, Queue: c.Queue, RxFrames: 64, TxSlots: 64,
		NewSocket: c.NewSocket, BindTimeout: c.BindTimeout}.withDefaults()
	if err != nil {
		return false, err
	}
	s, err := open(probe, binding{zeroCopy: true})
	if errors.Is(err, unix.EINVAL) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return false, s.Close()
}

// fitsSmallChunks reports whether small chunks hold every frame in copy mode. They occupy half as much CPU cache.
// Zero-copy mode does not use them: each driver has its own rules for the use of a chunk, and some use only whole KiB
// of it after the headroom.
func (d *device) fitsSmallChunks(c *Config) bool {
	return !c.LargeFrames && c.TxSlot == 1 && d.mtu+vlanHeader <= 1<<smallShift-RxHeadroom
}

// missingFeature returns the feature that the driver lacks for b, or nil if b should work or the driver is unknown.
func (d *device) missingFeature(b binding) error {
	switch {
	case d.driverErr != nil:
		return nil
	case !d.driver.ZeroCopy:
		return fmt.Errorf("%w: the driver has no zero-copy mode", unix.EOPNOTSUPP)
	case b.segments && d.driver.Segments == 1:
		return fmt.Errorf("%w: the driver's zero-copy supports one chunk per frame, so an MTU of at "+
			"most %d, and the MTU is %d",
			unix.EOPNOTSUPP, oneChunkMTU, d.mtu)
	}
	return nil
}

// maxZeroCopyMTU returns the largest MTU for which the kernel binds with zero-copy. If the driver does not report its
// maximum number of chunks per frame, maxZeroCopyMTU assumes MaxFrags.
func (d *device) maxZeroCopyMTU(b binding) int {
	segments := 1
	if b.segments {
		segments = cmp.Or(d.driver.Segments, MaxFrags)
	}
	return segments*int(b.minRxBytes()) - longestHeader
}

// explainError adds the cause and the next step to the error of a zero-copy bind.
func (d *device) explainError(b binding, err error) error {
	switch {
	case errors.Is(err, unix.EOPNOTSUPP) && d.driverErr != nil && b.segments:
		return fmt.Errorf("%w: the driver has no zero-copy mode, or none for an MTU of %d; %w", err,
			d.mtu, d.driverErr)
	case errors.Is(err, unix.EOPNOTSUPP) && d.driverErr != nil:
		return fmt.Errorf("%w: the driver has no zero-copy mode; %w", err, d.driverErr)
	case errors.Is(err, unix.EOPNOTSUPP) && b.segments:
		return fmt.Errorf("%w: the driver has a zero-copy mode, but refuses it for an MTU of %d",
			err, d.mtu)
	case errors.Is(err, unix.EINVAL) && d.mtu > d.maxZeroCopyMTU(b):
		return fmt.Errorf("%w: the driver's zero-copy supports %d chunks per frame, so an MTU of at most %d, "+
			"and the MTU is %d", err, d.driver.Segments, d.maxZeroCopyMTU(b), d.mtu)
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
		return fmt.Errorf("%w: the driver refuses zero-copy with its present settings (MTU %d, "+
			"rings, channels; virtio needs iommu_platform); "+
			"the kernel log may say which", err, d.mtu)
	case errors.Is(err, unix.ENOMEM):
		return fmt.Errorf("%w: no memory for the device's zero-copy queue", err)
	}
	return err
}
