package ring

import (
	"fmt"
	"math/bits"
	"time"
)

// Mode is the way in which frames pass between the driver and the UMEM.
type Mode uint8

// Modes of a socket.
const (
	ModeAuto     Mode = iota // zero-copy if the driver supports it without a known fault, otherwise copy
	ModeCopy                 // the kernel copies; every driver supports it
	ModeZeroCopy             // the device reads and writes the UMEM; an error if the driver does not support it
)

var modeNames = [...]string{ModeAuto: "auto", ModeCopy: "copy", ModeZeroCopy: "zero-copy"}

// String returns the name of m.
func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return fmt.Sprintf("Mode(%d)", uint8(m))
}

// MarshalText returns the name of m, for flags and files.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText sets m to the mode with the given name, as MarshalText returns it.
func (m *Mode) UnmarshalText(text []byte) error {
	for *m = ModeAuto; *m <= ModeZeroCopy; *m++ {
		if m.String() == string(text) {
			return nil
		}
	}
	return fmt.Errorf("ring: mode %q is not auto, copy or zero-copy", text)
}

// Config is the configuration of a socket. Zero fields mean the default.
type Config struct {
	Ifindex int    // the device, in the network namespace of the calling thread; unused by a fake
	Queue   uint32 // the device's receive and transmit queue

	RxFrames uint32 // chunks for reception, 0: DefaultRxFrames
	TxSlots  uint32 // transmit slots, 0: DefaultTxSlots
	TxSlot   uint32 // adjacent chunks per transmit slot, 0: 1; see SlotFor, and Info.TxRoom for its bytes
	MaxFrags uint32 // maximum chunks of a received packet; longer ones are dropped; 0: MaxFrags, at most RxFrames

	// Ring sizes are powers of two; 0: the smallest size for all frames that may be in the ring.
	FillSize, RxSize, TxSize, CompSize uint32

	// LargeFrames says that received frames may be longer than the MTU: in generic XDP mode they may be blocks that
	// were never cut into segments, or segments merged by the kernel.
	LargeFrames bool

	Mode       Mode
	HugePages  bool   // use 2 MiB pages for the UMEM, or ordinary pages if there are none; see Info
	KickBudget uint32 // maximum packets per transmit system call, 0: DefaultKickBudget
	Kicks      uint32 // maximum transmit system calls per Flush, 0: DefaultKicks
	// NewSocket, if set, returns an unbound AF_XDP socket, such as one created while the process was privileged: see
	// [NewSocket].
	NewSocket   func() (fd int, err error)
	BindTimeout time.Duration // how long to wait for a queue that is still busy, 0: DefaultBindTimeout
}

// SlotFor returns the TxSlot for frames of n bytes, Ethernet header included.
func SlotFor(n int) uint32 { return max(1, uint32((n+ChunkSize-1)/ChunkSize)) }

// Frames returns the number of chunks of the UMEM.
func (c *Config) Frames() uint32 { return c.RxFrames + c.TxSlots*c.TxSlot }

// withDefaults returns c with zero fields replaced by defaults. It fails if a field is invalid.
func (c Config) withDefaults() (Config, error) {
	if err := c.complete(); err != nil {
		return c, fmt.Errorf("ring: config: %w", err)
	}
	return c, nil
}

func (c *Config) complete() error {
	set := func(v *uint32, d uint32) {
		if *v == 0 {
			*v = d
		}
	}
	set(&c.RxFrames, DefaultRxFrames)
	set(&c.TxSlots, DefaultTxSlots)
	set(&c.TxSlot, 1)
	set(&c.MaxFrags, min(MaxFrags, c.RxFrames))
	set(&c.KickBudget, DefaultKickBudget)
	set(&c.Kicks, DefaultKicks)
	if c.NewSocket == nil {
		c.NewSocket = NewSocket
	}
	if c.BindTimeout == 0 {
		c.BindTimeout = DefaultBindTimeout
	}
	if err := c.checkMemory(); err != nil {
		return err
	}
	set(&c.FillSize, powerOfTwo(c.RxFrames))
	set(&c.RxSize, powerOfTwo(c.RxFrames))
	set(&c.TxSize, powerOfTwo(c.TxSlots*c.TxSlot))
	set(&c.CompSize, powerOfTwo(c.TxSlots*c.TxSlot))
	return c.checkRings()
}

func (c *Config) checkMemory() error {
	switch {
	case c.Ifindex < 0:
		return fmt.Errorf("device index Ifindex %d is negative", c.Ifindex)
	case c.TxSlot > MaxTxSlot:
		return fmt.Errorf("TxSlot %d chunks, at most %d: the kernel refuses longer frames",
			c.TxSlot, MaxTxSlot)
	case c.RxFrames > MaxFrames || c.TxSlots > MaxFrames || c.Frames() > MaxFrames:
		return fmt.Errorf("RxFrames %d + TxSlots %d * TxSlot %d chunks, at most %d",
			c.RxFrames, c.TxSlots, c.TxSlot, MaxFrames)
	case c.MaxFrags > MaxFrags:
		return fmt.Errorf("MaxFrags %d, at most %d", c.MaxFrags, MaxFrags)
	case c.MaxFrags > c.RxFrames:
		return fmt.Errorf("RxFrames %d cannot hold one packet of MaxFrags %d chunks",
			c.RxFrames, c.MaxFrags)
	case c.KickBudget > MaxKickBudget:
		return fmt.Errorf("KickBudget %d packets, at most %d", c.KickBudget, MaxKickBudget)
	case c.Kicks > MaxKicks:
		return fmt.Errorf("transmit calls Kicks %d, at most %d", c.Kicks, MaxKicks)
	case c.Mode > ModeZeroCopy:
		return fmt.Errorf("unknown mode %v", c.Mode)
	case c.BindTimeout < 0:
		return fmt.Errorf("BindTimeout %v is negative", c.BindTimeout)
	}
	return nil
}

func (c *Config) checkRings() error {
	for _, r := range []struct {
		name       string
		size, need uint32
	}{
		{"FillSize", c.FillSize, 1},
		{"RxSize", c.RxSize, c.MaxFrags},
		{"TxSize", c.TxSize, c.TxSlot},
		// All transmitted frames must fit the completion ring, or the kernel stops transmitting.
		{"CompSize", c.CompSize, c.TxSlots * c.TxSlot},
	} {
		switch {
		case r.size&(r.size-1) != 0:
			return fmt.Errorf("%s %d is not a power of two", r.name, r.size)
		case r.size > MaxRingSize:
			return fmt.Errorf("%s %d, at most %d", r.name, r.size, MaxRingSize)
		case r.size < r.need:
			return fmt.Errorf("%s %d is less than the %d entries that may be in the ring", r.name,
				r.size, r.need)
		}
	}
	return nil
}

// powerOfTwo returns the smallest power of two that is at least n. n is at most 2^31.
func powerOfTwo(n uint32) uint32 { return 1 << bits.Len32(max(n, 1)-1) }
