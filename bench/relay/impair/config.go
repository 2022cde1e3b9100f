package impair

import (
	"fmt"
	"net/netip"

	"xwarp/tcp/tick"
)

// CorruptMode says how a segment is damaged.
type CorruptMode uint8

// The ways to damage a segment. All change TCP payload only.
const (
	// CorruptSealed changes one byte and makes the TCP checksum right again: only a check above TCP, as MPA's CRC,
	// can find it.
	CorruptSealed CorruptMode = iota
	// CorruptRaw flips one bit and keeps the old checksum: TCP detects it.
	CorruptRaw
	// CorruptPair flips two bits whose effects on the checksum cancel out, as failing memory in a switch may do; the
	// checksum field is not touched. Payload in which no such pair exists is left whole and counted.
	CorruptPair
)

// Config is the impairments of one direction. The zero value passes everything at once. Fractions are 0 to 1 and apply
// to each IP packet independently.
type Config struct {
	Loss      float64 // of IP packets
	Duplicate float64 // of IP packets; the copy follows at once
	Reorder   float64 // of IP packets: held back until others passed
	Corrupt   float64 // of TCP segments with more payload than CorruptAbove

	// ReorderDepth is the largest number of packets that pass a held one (uniform from 1), 0 for DefaultReorderDepth.
	ReorderDepth int
	// ReorderHold is the longest that a packet is held when too few others come, 0 for DefaultReorderHold.
	ReorderHold tick.Duration

	CorruptMode CorruptMode
	// CorruptAbove is the number of payload bytes up to which a segment is spared. 0 means DefaultCorruptAbove, a
	// negative number spares none. MPA's start-up frames have no CRC, so nothing could detect a sealed corruption
	// of them.
	CorruptAbove int

	// Resegment is a middlebox that re-cuts and merges the TCP segments of each flow at random boundaries.
	Resegment bool

	Delay tick.Duration // one way, the same for every packet
	// Rate is the bottleneck in bits per second of Ethernet frames without preamble and FCS, 0 for none.
	Rate int64
	// Queue is the most bytes that wait for the bottleneck. Frames that do not fit are dropped. 0 for DefaultQueue.
	Queue int
	// MarkAbove marks ECN-capable packets that meet more bytes than this in the queue, 0 for never.
	MarkAbove int

	// MTU drops larger IP packets, 0 for no limit. Nothing is fragmented.
	MTU int
	// MTUReply sends "fragmentation needed" or "packet too big" back to the sender; false is a black hole.
	MTUReply bool
	// Reply4 and Reply6 are the router's addresses in such replies; without them the packet's destination is used.
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

// Counters count frames of one direction since its start.
//
//	In + Duplicated + RecutOut = Out + RecutIn + Lost + QueueDropped + TooBig + Blackholed + inside
//
// where inside leaves out what is held for re-cutting: RecutIn has it already.
type Counters struct {
	In            uint64
	Out, OutBytes uint64
	Untouched     uint64 // ARP, neighbour discovery and other frames that bypass all stages

	Lost, Duplicated  uint64
	Reordered         uint64 // came out behind a packet that arrived later
	Corrupted         uint64
	CorruptImpossible uint64 // the payload had no two bits that cancel out (CorruptPair)

	RecutIn, RecutOut uint64 // segments taken apart, and segments built from them
	BadChecksum       uint64 // passed as they are instead of being re-cut, which would hide the error

	QueueDropped uint64 // no room at the bottleneck, or more held than one direction may
	Marked       uint64 // ECN CE set
	MaxQueue     int    // bytes, the most that waited at the bottleneck

	TooBig     uint64 // larger than MTU
	Replies    uint64 // ICMP errors made for them
	Blackholed uint64
}
