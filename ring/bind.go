package ring

import (
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

// flags are those of struct sockaddr_xdp.
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

// vlanHeader is the length of the longest Ethernet header that the steering program passes: with two VLAN tags.
const vlanHeader = ethHeader + 2*4

// negotiate binds with the best mode that c allows and the device supports, by calls of open. ModeAuto does not use a
// zero-copy mode known to be faulty. Zero-copy is requested without XDP_USE_SG if every frame fits one chunk, because a
// driver whose zero-copy supports one buffer per frame refuses the flag. Every attempt uses its own socket, because a
// UMEM keeps the flag of a failed bind.
func (d *device) negotiate(c *Config, open func(binding) (*Socket, error)) (*Socket, error) {
	copied := binding{segments: true, small: d.fitsSmallChunks(c)}
	if c.Mode == ModeCopy {
		return open(copied)
	}
	direct := binding{zeroCopy: true, segments: c.TxSlot > 1 || d.mtu+vlanHeader > RxChunkData}
	why, fault := d.missingFeature(direct), d.driver.ZeroCopyFault()
	if why == nil && c.Mode == ModeAuto {
		why = fault
	}
	if why == nil {
		s, err := open(direct)
		if err == nil {
			s.info.Fault = fault
		}
		if err == nil || errors.Is(err, unix.EBUSY) {
			return s, err
		}
		why = d.explainError(direct, err)
	}
	if c.Mode == ModeZeroCopy {
		return nil, fmt.Errorf("%w (ring mode auto copies instead)", why)
	}
	s, err := open(copied)
	if err == nil {
		s.info.NoZeroCopy = why
	}
	return s, err
}

// fitsSmallChunks reports whether small chunks hold every frame. They occupy half as much CPU cache. Only copy mode
// uses them: drivers divide zero-copy chunks by their own rules, and some use only whole KiB of a chunk, after the
// headroom.
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
			unix.EOPNOTSUPP, RxChunkData-vlanHeader, d.mtu)
	}
	return nil
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
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
		return fmt.Errorf("%w: the driver refuses zero-copy with its present settings (MTU %d, "+
			"rings, channels; virtio needs iommu_platform); "+
			"the kernel log may say which", err, d.mtu)
	case errors.Is(err, unix.ENOMEM):
		return fmt.Errorf("%w: no memory for the device's zero-copy queue", err)
	}
	return err
}
