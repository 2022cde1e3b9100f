// Package sim runs whole engines in virtual time: stacks on fake rings, connected by paths, with one thread, one clock
// and one seed. The same calls give the same frames at the same nanosecond, so a failure can be replayed from its seed.
//
//	upper layers          iWARP connections, queue pairs, byte streams
//	stack.Stack           one per Host
//	ring.FakeKernel       the NIC
//	Path up -> switch -> Path down -> the next Host's NIC
//
// A World does not know what paths do to frames or what is transferred; its user defines both.
package sim

import (
	"container/heap"
	"fmt"
	"hash/crc32"
	"math/bits"

	"xwarp/tcp/ip"
	"xwarp/tcp/tick"
)

// Path is one direction of a link: it delays, drops and changes frames. A nil Path delivers everything at once.
type Path interface {
	// Push takes a frame that arrives now. The Path must copy what it keeps.
	Push(frame []byte, now tick.Time)
	// Pop returns a frame that is due, or nil. The frame is valid until the next call.
	Pop(now tick.Time) []byte
	// Reply returns a frame for the other direction, made by the path in a router's name, or nil.
	Reply() []byte
	// Deadline returns the time from which Pop may return a frame if nothing is pushed before.
	Deadline() tick.Time
}

// Direction is the direction of a frame at a host.
type Direction uint8

// The directions.
const (
	Out Direction = iota
	In
	Dropped // it arrived, but the NIC had no room
)

func (d Direction) String() string { return [...]string{"out", "in ", "no room"}[d] }

// Limits of a World.
const (
	// MaxRounds is how often hosts and paths may react to each other at one instant. More is a livelock.
	MaxRounds = 10000
	// MaxSteps is how many consecutive steps one host may take at one instant.
	MaxSteps = 10000
)

// World is a set of hosts with a common clock.
type World struct {
	now    tick.Time
	hosts  []*Host
	events eventHeap
	serial uint64
	hash   uint64
	frames uint64
	seed   uint64
	err    error

	// Tap, if set, sees each frame that a host sends or that arrives there. The frame is valid during the call.
	Tap func(h *Host, d Direction, frame []byte, now tick.Time)
	// Check, if set, runs after everything that is due at one instant. Its error ends Run.
	Check func(now tick.Time) error
}

// Epoch is the start time of a World. It is not 0, so that an unset time is noticed.
const Epoch = tick.Time(1000 * tick.Second)

// NewWorld returns a World without hosts. seed determines the secrets of its hosts.
func NewWorld(seed uint64) *World { return &World{now: Epoch, seed: seed, hash: seed} }

// Now returns the time.
func (w *World) Now() tick.Time { return w.now }

// Since returns the time since Epoch.
func (w *World) Since() tick.Duration { return w.now.Sub(Epoch) }

// Hash returns a digest of all frames sent or received so far, with their times and hosts.
func (w *World) Hash() uint64 { return w.hash }

// Frames returns how many frames were sent or received so far.
func (w *World) Frames() uint64 { return w.frames }

// Hosts returns the hosts in the order in which they were added.
func (w *World) Hosts() []*Host { return w.hosts }

// Fail ends Run with err. The first error counts.
func (w *World) Fail(err error) {
	if w.err == nil && err != nil {
		w.err = fmt.Errorf("at %v: %w", w.Since(), err)
	}
}

// At runs f at time t, or now if t is past. Events of the same time run in the order of registration.
func (w *World) At(t tick.Time, f func()) {
	w.serial++
	heap.Push(&w.events, event{max(t, w.now), w.serial, f})
}

// After is At with a time relative to now.
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

// Run advances the time until done returns true, nothing is left to happen, or the time is until. done may be nil. The
// error is a violated invariant.
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

// nextEvent returns the time of the next event.
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

// instant does everything that is due now: events, then paths, then hosts, in the order of the hosts, until nothing is
// due.
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

// route is the switch between the hosts: it forwards frames by Ethernet destination.
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
