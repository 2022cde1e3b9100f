// Package sim runs whole engines in virtual time: stacks on fake rings, joined by paths, with one thread, one
// clock and one seed. The same calls give the same frames at the same nanoseconds, so that a failure can be
// replayed from its seed.
//
//	upper layers          iWARP connections, queue pairs, byte streams
//	stack.Stack           one per Host
//	ring.FakeKernel       the NIC
//	Path up -> switch -> Path down -> the next Host's NIC
//
// A World knows nothing about what paths do to frames, nor about what is transferred: that is its user's.
package sim

import (
	"container/heap"
	"fmt"
	"hash/crc32"
	"math/bits"

	"xwarp/tcp/ip"
	"xwarp/tcp/tick"
)

// Path is one direction of a link: it delays, drops and changes frames. A nil Path passes everything at once.
type Path interface {
	// Push takes a frame that arrives now; it may keep a copy only.
	Push(frame []byte, now tick.Time)
	// Pop returns a frame that is due, nil when there is none; valid until the next call.
	Pop(now tick.Time) []byte
	// Reply returns a frame for the other direction, made by the path in a router's name, nil when there is none.
	Reply() []byte
	// Deadline returns when Pop may have something without a Push before.
	Deadline() tick.Time
}

// Direction of a frame at a host.
type Direction uint8

// The directions.
const (
	Out Direction = iota
	In
	Dropped // it arrived, and the NIC had no room for it
)

func (d Direction) String() string { return [...]string{"out", "in ", "no room"}[d] }

// Limits of a World.
const (
	// MaxRounds is how often hosts and paths may react to each other at one instant: more is a livelock.
	MaxRounds = 10000
	// MaxSteps is how many steps without a pause one host may take at one instant.
	MaxSteps = 10000
)

// World is some hosts and their time.
type World struct {
	now    tick.Time
	hosts  []*Host
	events eventHeap
	serial uint64
	hash   uint64
	frames uint64
	seed   uint64
	err    error

	// Tap, when set, sees each frame that a host sends or that arrives there; the frame is valid during the call.
	Tap func(h *Host, d Direction, frame []byte, now tick.Time)
	// Check, when set, runs after each instant; its error ends Run.
	Check func(now tick.Time) error
}

// Epoch is when a World begins. It is not 0, so that a forgotten time shows.
const Epoch = tick.Time(1000 * tick.Second)

// NewWorld returns a World without hosts; seed decides the secrets of its hosts.
func NewWorld(seed uint64) *World { return &World{now: Epoch, seed: seed, hash: seed} }

// Now returns the time.
func (w *World) Now() tick.Time { return w.now }

// Since returns the time since the beginning.
func (w *World) Since() tick.Duration { return w.now.Sub(Epoch) }

// Hash returns a digest of every frame that was sent or arrived so far, with its time and place.
func (w *World) Hash() uint64 { return w.hash }

// Frames returns how many frames were sent or arrived so far.
func (w *World) Frames() uint64 { return w.frames }

// Hosts returns the hosts in the order in which they were added.
func (w *World) Hosts() []*Host { return w.hosts }

// Fail ends Run with err; the first one counts.
func (w *World) Fail(err error) {
	if w.err == nil && err != nil {
		w.err = fmt.Errorf("at %v: %w", w.Since(), err)
	}
}

// At has f run at time t, or now when t is past; events of one time run in the order of their registration.
func (w *World) At(t tick.Time, f func()) {
	w.serial++
	heap.Push(&w.events, event{max(t, w.now), w.serial, f})
}

// After is At, d from now.
func (w *World) After(d tick.Duration, f func()) { w.At(w.now.Add(d), f) }

type event struct {
	at     tick.Time
	serial uint64
	f      func()
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].serial < h[j].serial
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = event{}
	*h = old[:len(old)-1]
	return e
}

// Run lets time pass until done returns true, nothing is left to happen, or the time is until; done may be nil. The
// error is a broken invariant.
func (w *World) Run(until tick.Time, done func() bool) error {
	for w.err == nil && (done == nil || !done()) {
		t := w.nextEvent()
		if t > until {
			if until != tick.Never {
				w.now = max(w.now, until)
			}
			return nil
		}
		w.now = max(w.now, t)
		w.instant()
		if w.Check != nil && w.err == nil {
			w.Fail(w.Check(w.now))
		}
	}
	return w.err
}

// nextEvent returns when something happens next.
func (w *World) nextEvent() tick.Time {
	t := tick.Never
	if len(w.events) > 0 {
		t = w.events[0].at
	}
	for _, h := range w.hosts {
		t = min(t, h.next())
	}
	return t
}

// instant does everything that is due now: events, then paths, then hosts, each in the order of its number,
// until nothing is.
func (w *World) instant() {
	for range MaxRounds {
		worked := false
		for len(w.events) > 0 && w.events[0].at <= w.now {
			heap.Pop(&w.events).(event).f()
			worked = true
		}
		for _, h := range w.hosts {
			worked = w.carry(h) || worked
		}
		for _, h := range w.hosts {
			if h.due() <= w.now {
				h.runInstant()
				worked = true
			}
			if w.err != nil {
				return
			}
		}
		if !worked {
			return
		}
	}
	w.Fail(fmt.Errorf("time stands still: hosts and paths keep working after %d rounds", MaxRounds))
}

// carry moves frames that are due along both paths of h.
func (w *World) carry(h *Host) (worked bool) {
	if p := h.cfg.Up; p != nil && p.Deadline() <= w.now {
		for f := p.Pop(w.now); f != nil; f = p.Pop(w.now) {
			w.route(f)
			worked = true
		}
	}
	if p := h.cfg.Down; p != nil && p.Deadline() <= w.now {
		for f := p.Pop(w.now); f != nil; f = p.Pop(w.now) {
			h.inject(f)
			worked = true
		}
	}
	return worked
}

// route is the switch between the hosts: frames go where their Ethernet destination is.
func (w *World) route(frame []byte) {
	if len(frame) < 14 {
		return
	}
	h := w.byMAC([6]byte(frame[:6]))
	if h == nil {
		return
	}
	if h.cfg.Down == nil {
		h.inject(frame)
		return
	}
	h.cfg.Down.Push(frame, w.now)
	for r := h.cfg.Down.Reply(); r != nil; r = h.cfg.Down.Reply() {
		if from := w.byMAC([6]byte(r[:6])); from != nil {
			from.inject(r)
		}
	}
}

func (w *World) byMAC(mac [6]byte) *Host {
	for _, h := range w.hosts {
		if h.mac == mac {
			return h
		}
	}
	return nil
}

func (w *World) byAddr(a ip.Addr) *Host {
	for _, h := range w.hosts {
		for _, own := range h.cfg.Addrs {
			if own == a {
				return h
			}
		}
	}
	return nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// record adds a frame to the digest.
func (w *World) record(h *Host, d Direction, frame []byte) {
	w.frames++
	w.hash = mix(w.hash ^ uint64(w.now))
	w.hash = mix(w.hash ^ uint64(crc32.Checksum(frame, castagnoli))<<16 ^ uint64(
		h.index)<<8 ^ uint64(d))
	if w.Tap != nil {
		w.Tap(h, d, frame, w.now)
	}
}

// mix is one round of a multiplicative hash.
func mix(x uint64) uint64 {
	hi, lo := bits.Mul64(x^0x9e3779b97f4a7c15, 0xd6e8feb86659fd93)
	return hi ^ lo
}
