package impair

import (
	"fmt"
	"net/netip"

	"xwarp/tcp/tick"
)

// CorruptMode is the way in which a segment is damaged.
type CorruptMode uint8

// The ways to damage a segment. All change TCP payload only.
const (
	// CorruptSealed changes one byte and adapts the TCP checksum. Only a check above TCP, such as MPA's CRC, can find
	// the change.
	CorruptSealed CorruptMode = iota
	// CorruptRaw flips one bit and keeps the old checksum: TCP detects it.
	CorruptRaw
	// CorruptPair flips two bits whose effects on the checksum cancel out, as failing memory in a switch may do. The
	// checksum field does not change. Payload without such a pair is left unchanged and counted in CorruptImpossible.
	CorruptPair
)

// Config is the impairments of one direction. The zero value passes every frame unchanged and without delay. Fractions
// are 0 to 1 and apply to each IP packet independently.
type Config struct {
	Loss      float64 // fraction of IP packets that are dropped
	Duplicate float64 // fraction of IP packets that are sent twice, the copy at once
	Reorder   float64 // fraction of IP packets that are held back until later ones have passed
	Corrupt   float64 // fraction of TCP segments that are damaged, of those with more payload than CorruptAbove

	// ReorderDepth is the largest number of packets that pass a held one; the number is random, from 1 on. 0 means
	// DefaultReorderDepth.
	ReorderDepth int
	// ReorderHold is the maximum time for which a packet is held if too few others pass it. 0 means DefaultReorderHold.
	ReorderHold tick.Duration

	CorruptMode CorruptMode
	// CorruptAbove is the number of payload bytes up to which a segment is never damaged. 0 means DefaultCorruptAbove;
	// a negative number allows damage to all. It protects MPA's start-up frames: they have no CRC, so nothing could
	// detect CorruptSealed in them.
	CorruptAbove int

	// Resegment re-cuts and merges the TCP segments of each flow at random boundaries, as a middlebox may.
	Resegment bool

	Delay tick.Duration // delay in this direction, the same for every packet
	// Rate is the rate of the bottleneck in bits per second, of Ethernet frames without preamble and FCS. 0 means no
	// bottleneck.
	Rate int64
	// Queue is the maximum number of bytes in the queue of the bottleneck. Frames that do not fit are dropped. 0 means
	// DefaultQueue.
	Queue int
	// MarkAbove is the number of queued bytes above which an arriving ECN-capable packet is marked. 0 means never.
	MarkAbove int

	// MTU is the size of an IP packet above which it is dropped. 0 means no limit. Nothing is fragmented.
	MTU int
	// MTUReply sends ICMP "fragmentation needed" or "packet too big" to the sender of a packet above MTU. Without it
	// the packet is dropped silently.
	MTUReply bool
	// Reply4 and Reply6 are the source addresses of such replies. If unset, it is the destination of the packet.
	Reply4, Reply6 netip.Addr

	// Blackhole drops every IP packet.
	Blackhole bool
}

// Validate reports the first invalid field.
func (c *Config) Validate() error {
	for _, f := range []struct {
		name string
		v    float64
	}{{"loss", c.Loss}, {"duplicate", c.Duplicate}, {"reorder", c.Reorder},
		{"corrupt", c.Corrupt}} {
		if !(f.v >= 0 && f.v <= 1) { // also refuses NaN
			return fmt.Errorf("impair: %s is %v, want a fraction from 0 to 1", f.name, f.v)
		}
	}
	for _, f := range []struct {
		name string
		v    int64
	}{
		{"reorder depth", int64(c.ReorderDepth)}, {"reorder hold", int64(c.ReorderHold)},
		{"delay", int64(c.Delay)}, {"rate", c.Rate}, {"queue", int64(c.Queue)},
		{"mark threshold", int64(c.MarkAbove)},
		{"MTU", int64(c.MTU)},
	} {
		if f.v < 0 {
			return fmt.Errorf("impair: %s is %d, must not be negative", f.name, f.v)
		}
	}
	switch {
	case c.MTU != 0 && c.MTU < 576: // RFC 791: every internet module must accept 576 bytes
		return fmt.Errorf("impair: MTU %d is below 576", c.MTU)
	case c.CorruptMode > CorruptPair:
		return fmt.Errorf("impair: unknown corrupt mode %d", c.CorruptMode)
	case c.MarkAbove > 0 && c.Rate == 0:
		return fmt.Errorf("impair: a mark threshold needs a rate: without one nothing queues")
	case c.Reply4.IsValid() && !c.Reply4.Is4(), c.Reply6.IsValid() && !c.Reply6.Is6():
		return fmt.Errorf("impair: reply addresses %v and %v have the wrong family", c.Reply4,
			c.Reply6)
	}
	return nil
}

// withDefaults returns c with every zero field that has a default filled in.
func (c Config) withDefaults() Config {
	if c.ReorderDepth == 0 {
		c.ReorderDepth = DefaultReorderDepth
	}
	if c.ReorderHold == 0 {
		c.ReorderHold = DefaultReorderHold
	}
	if c.Queue == 0 {
		c.Queue = DefaultQueue
	}
	if c.CorruptAbove == 0 {
		c.CorruptAbove = DefaultCorruptAbove
	}
	return c
}

// Counters count the frames of one direction since the path was made.
//
//	In + Duplicated + RecutOut = Out + RecutIn + Lost + QueueDropped + TooBig + Blackholed + inside
//
// where inside is the number of frames in the path, except those held for re-cutting, which RecutIn already counts.
type Counters struct {
	In            uint64
	Out, OutBytes uint64
	Untouched     uint64 // ARP, neighbour discovery and other frames that bypass all stages

	Lost, Duplicated  uint64
	Reordered         uint64 // packets that left after a packet that arrived later
	Corrupted         uint64
	CorruptImpossible uint64 // packets that CorruptPair left unchanged, because no two bits cancel out

	RecutIn, RecutOut uint64 // segments taken apart, and segments built from their bytes
	BadChecksum       uint64 // segments with a wrong checksum, not re-cut because that would hide the error

	QueueDropped uint64 // frames without room at the bottleneck, or above the limit of frames inside
	Marked       uint64 // packets that left the MarkAbove check with ECN CE
	MaxQueue     int    // maximum number of bytes in the queue of the bottleneck

	TooBig     uint64 // packets dropped because they are larger than MTU
	Replies    uint64 // ICMP errors sent for packets larger than MTU
	Blackholed uint64
}
