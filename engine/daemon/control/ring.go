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
//	128  armed  1: the consumer wants a signal on its channel for the next entry
//	132  state  1: the completion queue overran
//	136  waits  not 0: the consumer sleeps on this word, a futex, for the next entry
//	192  slots
//
// All words are 32 bits of the host's byte order. Each side keeps its own index privately, and takes the
// other's for what the other side says: an index that cannot be ends the session.
const (
	tailAt  = 0
	headAt  = 64
	armedAt = 128
	stateAt = 132
	waitsAt = 136
	slotsAt = 192

	ringAlign = 4096 // of the second ring in one memory
)

// armedSolicited is the value of a completion queue's armed word whose consumer waits for a
// completion that is solicited or an error.
const armedSolicited = 2

// StateOverrun is the value of a completion queue's state word after completions were lost.
const StateOverrun = 1

// ErrIndex is returned when the other side's index is impossible.
var ErrIndex = errors.New("invalid index in a shared ring")

// Geometry says where a ring lies in its memory.
type Geometry struct {
	Offset   uint32 `json:"offset"`
	Slots    uint32 `json:"slots"` // power of two
	SlotSize uint32 `json:"slot_size"`
}

// Len returns the bytes of the ring.
func (g Geometry) Len() int { return slotsAt + int(g.Slots)*int(g.SlotSize) }

// After returns where a ring behind g begins.
func (g Geometry) After() uint32 {
	return (g.Offset + uint32(g.Len()) + ringAlign - 1) &^ (ringAlign - 1)
}

// NewGeometry returns a ring for at least depth slots of size bytes, which is rounded up to a cache line.
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

// Armed is the word with which a consumer asks for a signal, State the one that says how the ring is.
func (a *area) Armed() *uint32 { return word(a.mem, armedAt) }

// State returns the state word.
func (a *area) State() *uint32 { return word(a.mem, stateAt) }

// Cap returns the number of slots.
func (a *area) Cap() int { return int(a.mask) + 1 }

// Producer is the side that fills a ring. It is not locked.
type Producer struct{ area }

// NewProducer begins to fill a ring that is all zero.
func NewProducer(mem []byte, g Geometry) (*Producer, error) {
	a, err := newArea(mem, g)
	return &Producer{a}, err
}

// Next returns the slot to fill next, nil when the ring is full.
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

// Publish hands the slot that Next returned to the consumer.
func (p *Producer) Publish() {
	p.own++
	atomic.StoreUint32(word(p.mem, tailAt), p.own)
}

const (
	futexWake = 1 // FUTEX_WAKE of <linux/futex.h>, between processes

	// maxWoken is how many threads of a consumer one entry wakes: the producer may be a worker that others need.
	maxWoken = 8
)

// WakeConsumer ends the sleep of a consumer, if it sleeps. A consumer that says so for each entry makes each cost the
// producer a system call, which wakes maxWoken threads at most and does not wait.
func (p *Producer) WakeConsumer() {
	if w := word(p.mem, waitsAt); Disarm(w) {
		_, _, _ = unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(w)), futexWake,
			maxWoken, 0, 0, 0)
	}
}

// Consumer is the side that empties a ring. It is not locked.
type Consumer struct{ area }

// NewConsumer begins to empty a ring that was all zero.
func NewConsumer(mem []byte, g Geometry) (*Consumer, error) {
	a, err := newArea(mem, g)
	return &Consumer{a}, err
}

// Next returns the oldest slot, nil when there is none. The producer may still write to it: copy it before it
// is looked at.
func (c *Consumer) Next() ([]byte, error) {
	n := atomic.LoadUint32(word(c.mem, tailAt)) - c.own
	switch {
	case n > c.mask+1:
		return nil, ErrIndex
	case n == 0:
		return nil, nil
	}
	return c.slot(c.own), nil
}

// Len returns how many entries there are.
func (c *Consumer) Len() (int, error) {
	n := atomic.LoadUint32(word(c.mem, tailAt)) - c.own
	if n > c.mask+1 {
		return 0, ErrIndex
	}
	return int(n), nil
}

// Release gives the slot that Next returned back.
func (c *Consumer) Release() {
	c.own++
	atomic.StoreUint32(word(c.mem, headAt), c.own)
}

// Skip gives all entries back.
func (c *Consumer) Skip() error {
	n, err := c.Len()
	c.own += uint32(n)
	atomic.StoreUint32(word(c.mem, headAt), c.own)
	return err
}

// Doorbell memory of a session:
//
//	 0  sleeps  1 while the daemon sleeps: a program that posts then sets it to 0 and writes the eventfd
//	64  bells   one bit for each queue pair: bit n mod 32 of word n / 32, set by a program that posts
//
// The bells are hints: the daemon looks at no other queue pairs, and believes nothing of those but what their
// rings hold.
const (
	DoorbellLen = 4096
	bellsAt     = 64
	// MaxQPs bounds the queue pairs of a session: each has a bell.
	MaxQPs = (DoorbellLen - bellsAt) * 8
)

// Doorbell is the word of doorbell memory that says whether the daemon sleeps.
func Doorbell(mem []byte) *uint32 { return word(mem, 0) }

// RingBell says that the queue pair of that bell has something in its work queues.
func RingBell(mem []byte, bell uint32) {
	w, bit := word(mem, bellsAt+int(bell/32)*4), uint32(1)<<(bell%32)
	if atomic.LoadUint32(w)&bit == 0 {
		atomic.OrUint32(w, bit)
	}
}

// TakeBells calls f for each bell below n that was rung, and silences it before.
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

// SilenceBell forgets that a bell was rung.
func SilenceBell(mem []byte, bell uint32) {
	atomic.AndUint32(word(mem, bellsAt+int(bell)/32*4), ^(uint32(1) << (bell % 32)))
}

// Disarm sets *w from 1 to 0 and reports whether it was 1.
func Disarm(w *uint32) bool { return atomic.LoadUint32(w) != 0 && atomic.SwapUint32(w, 0) != 0 }

// TakeArmed is Disarm of the word of a completion queue, which stays when it waits for solicited completions only.
func TakeArmed(w *uint32, solicited bool) bool {
	v := atomic.LoadUint32(w)
	return v != 0 && (v != armedSolicited || solicited) && atomic.SwapUint32(w, 0) != 0
}

// Arm sets *w to 1.
func Arm(w *uint32) { atomic.StoreUint32(w, 1) }
