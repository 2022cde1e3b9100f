package control

import (
	"errors"
	"fmt"
	"math/bits"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A ring is an area of shared memory with one producer and one consumer:
//
//	  0  tail   entries produced so far, modulo 2^32; the producer writes it
//	 64  head   entries consumed so far; the consumer writes it
//	128  armed  1: the consumer wants a signal on its channel for the next entry; 2: see armedSolicited
//	132  state  1: the completion queue overran
//	136  waits  not 0: the consumer sleeps on this word, a futex, for the next entry
//	192  slots
//
// All words have 32 bits in host byte order. Each side keeps its own index privately and does not trust the other's: an
// invalid index ends the session.
const (
	tailAt  = 0
	headAt  = 64
	armedAt = 128
	stateAt = 132
	waitsAt = 136
	slotsAt = 192

	ringAlign = 4096 // alignment of the second ring in the same memory
)

// armedSolicited is the armed word of a completion queue whose consumer waits for a solicited completion or an error.
const armedSolicited = 2

// StateOverrun is the value of a completion queue's state word after completions were lost.
const StateOverrun = 1

// ErrIndex is returned for an invalid index of the other side.
var ErrIndex = errors.New("invalid index in a shared ring")

// Geometry is the position of a ring in its memory.
type Geometry struct {
	Offset   uint32 `json:"offset"`
	Slots    uint32 `json:"slots"` // power of two
	SlotSize uint32 `json:"slot_size"`
}

// Len returns the length of the ring in bytes.
func (g Geometry) Len() int { return slotsAt + int(g.Slots)*int(g.SlotSize) }

// After returns the offset of a ring that follows g in the same memory.
func (g Geometry) After() uint32 {
	return (g.Offset + uint32(g.Len()) + ringAlign - 1) &^ (ringAlign - 1)
}

// NewGeometry returns a ring at offset. It has depth slots, rounded up to a power of two, each of size bytes, rounded
// up to a cache line.
func NewGeometry(offset uint32, depth, size int) Geometry {
	n := 1
	for n < depth {
		n <<= 1
	}
	return Geometry{Offset: offset, Slots: uint32(n), SlotSize: uint32(size+63) &^ 63}
}

// area is the memory of one ring.
type area struct {
	mem  []byte
	size uint32
	mask uint32
	own  uint32 // this side's index
}

func newArea(mem []byte, g Geometry) (a area, err error) {
	bad := g.Slots == 0 || g.Slots&(g.Slots-1) != 0 || g.Slots > MaxCQDepth || g.SlotSize == 0 ||
		g.SlotSize%64 != 0 ||
		g.SlotSize > 1<<16 || g.Offset%64 != 0 ||
		uint64(g.Offset)+uint64(g.Len()) > uint64(len(mem))
	if bad {
		return a, fmt.Errorf("%w: ring of %d slots of %d bytes at offset %d in %d bytes", ErrFrame,
			g.Slots, g.SlotSize, g.Offset, len(mem))
	}
	return area{mem: mem[g.Offset:][:g.Len():g.Len()], size: g.SlotSize, mask: g.Slots - 1}, nil
}

// word returns a 32-bit word of shared memory. mem is a mapping, hence aligned.
func word(mem []byte, at int) *uint32 { return (*uint32)(unsafe.Pointer(&mem[at])) }

func (a *area) slot(i uint32) []byte {
	return a.mem[slotsAt+(i&a.mask)*a.size:][:a.size:a.size]
}

// Armed returns the word with which a consumer requests a signal.
func (a *area) Armed() *uint32 { return word(a.mem, armedAt) }

// State returns the state word.
func (a *area) State() *uint32 { return word(a.mem, stateAt) }

// Cap returns the number of slots.
func (a *area) Cap() int { return int(a.mask) + 1 }

// Producer is the side that fills a ring. It has no lock.
type Producer struct{ area }

// NewProducer starts to fill a zeroed ring.
func NewProducer(mem []byte, g Geometry) (*Producer, error) {
	a, err := newArea(mem, g)
	return &Producer{a}, err
}

// Next returns the next slot to fill, or nil if the ring is full.
func (p *Producer) Next() ([]byte, error) {
	used := p.own - atomic.LoadUint32(word(p.mem, headAt))
	switch {
	case used > p.mask+1:
		return nil, ErrIndex
	case used == p.mask+1:
		return nil, nil
	}
	return p.slot(p.own), nil
}

// Publish passes the slot returned by Next to the consumer.
func (p *Producer) Publish() {
	p.own++
	atomic.StoreUint32(word(p.mem, tailAt), p.own)
}

const (
	futexWake = 1 // FUTEX_WAKE of <linux/futex.h>, between processes

	// maxWoken is the maximum number of consumer threads that one wake-up wakes.
	maxWoken = 8
)

// Waits returns the word on which consumers sleep, see Wake.
func (p *Producer) Waits() *uint32 { return word(p.mem, waitsAt) }

// Wake wakes the consumers that sleep on the waits word of a ring. A worker must not call it: the kernel searches a
// list that this futex shares with others of the host, and any program can make that list long. The ring may already be
// unmapped: Wake then wakes nobody.
func Wake(waits *uint32) {
	unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(waits)), futexWake, maxWoken, 0, 0, 0)
}

// Consumer is the side that empties a ring. It has no lock.
type Consumer struct{ area }

// NewConsumer starts to empty a ring that was zeroed.
func NewConsumer(mem []byte, g Geometry) (*Consumer, error) {
	a, err := newArea(mem, g)
	return &Consumer{a}, err
}

// Next returns the oldest slot, or nil if the ring is empty. The producer may still write to it: copy it before parsing
// it.
func (c *Consumer) Next() ([]byte, error) {
	n, err := c.Len()
	if n == 0 {
		return nil, err
	}
	return c.slot(c.own), nil
}

// Len returns the number of entries that are not yet released.
func (c *Consumer) Len() (int, error) {
	n := atomic.LoadUint32(word(c.mem, tailAt)) - c.own
	if n > c.mask+1 {
		return 0, ErrIndex
	}
	return int(n), nil
}

// Release returns the slot of Next to the producer.
func (c *Consumer) Release() {
	c.own++
	atomic.StoreUint32(word(c.mem, headAt), c.own)
}

// Skip releases all entries, or none if it returns an error.
func (c *Consumer) Skip() error {
	n, err := c.Len()
	c.own += uint32(n)
	atomic.StoreUint32(word(c.mem, headAt), c.own)
	return err
}

// Doorbell memory of a session:
//
//	 0  sleeps  1 while the daemon sleeps: a program that posts then sets it to 0 and writes the eventfd
//	64  bells   one bit for each queue pair or SRQ: bit n mod 32 of word n / 32, set by a program that posts
//
// A bell is a hint: it makes the daemon look at the rings of that queue. Only what is in the rings counts.
const (
	DoorbellLen = 4096
	bellsAt     = 64
	// MaxBells limits the queue pairs and shared receive queues of a session together, because each has a bell.
	MaxBells = (DoorbellLen - bellsAt) * 8
)

// SleepWord returns the word of doorbell memory that says whether the daemon sleeps.
func SleepWord(mem []byte) *uint32 { return word(mem, 0) }

// RingBell sets a bell: the daemon looks for new entries in the rings of that queue pair or shared receive queue.
func RingBell(mem []byte, bell uint32) {
	w, bit := word(mem, bellsAt+int(bell/32)*4), uint32(1)<<(bell%32)
	if atomic.LoadUint32(w)&bit == 0 {
		atomic.OrUint32(w, bit)
	}
}

// TakeBells calls f for each bell below n that is set, after clearing it.
func TakeBells(mem []byte, n int, f func(bell int)) {
	for first := 0; first < n; first += 32 {
		w := word(mem, bellsAt+first/8)
		if atomic.LoadUint32(w) == 0 {
			continue
		}
		for set := atomic.SwapUint32(w, 0); set != 0; set &= set - 1 {
			if bell := first + bits.TrailingZeros32(set); bell < n {
				f(bell)
			}
		}
	}
}

// SilenceBell clears a bell.
func SilenceBell(mem []byte, bell uint32) {
	atomic.AndUint32(word(mem, bellsAt+int(bell)/32*4), ^(uint32(1) << (bell % 32)))
}

// Disarm sets *w to 0 and reports whether that changed it.
func Disarm(w *uint32) bool { return atomic.LoadUint32(w) != 0 && atomic.SwapUint32(w, 0) != 0 }

// TakeArmed is Disarm for the armed word of a completion queue, after a completion. If the consumer waits only for
// solicited completions (armedSolicited) and this one is not, TakeArmed changes nothing and returns false.
func TakeArmed(w *uint32, solicited bool) bool {
	v := atomic.LoadUint32(w)
	return v != 0 && (v != armedSolicited || solicited) && atomic.SwapUint32(w, 0) != 0
}

// Arm sets *w to 1.
func Arm(w *uint32) { atomic.StoreUint32(w, 1) }
