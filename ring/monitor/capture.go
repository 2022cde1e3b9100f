package monitor

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"
)

// Filter says which frames to capture. Zero fields do not filter.
type Filter struct {
	Flows  []Flow       // frames of one of these connections
	Remote netip.Prefix // addresses of the remote end
	Port   uint16       // of either end
}

func (f *Filter) all() bool { return len(f.Flows) == 0 && !f.Remote.IsValid() && f.Port == 0 }

func (f *Filter) matchFlow(w *Flow) bool {
	return (len(f.Flows) == 0 || slices.Contains(f.Flows, *w)) &&
		(!f.Remote.IsValid() || f.Remote.Contains(w.Remote.Addr())) &&
		(f.Port == 0 || w.Local.Port() == f.Port || w.Remote.Port() == f.Port)
}

// match reports whether a frame passes the filter. A frame without a TCP segment passes only if no field filters.
func (f *Filter) match(s *segment, isTCP bool, b []byte, d Direction) bool {
	if f.all() || !isTCP {
		return f.all()
	}
	w := s.flow(b, d)
	return f.matchFlow(&w)
}

// Limits of captures.
const (
	// MaxCaptures is the maximum number of concurrent captures of a device, because each copies frames.
	MaxCaptures = 4
	// DefaultRing is the size in bytes of the ring between a worker and a capture.
	DefaultRing = 8 << 20
	// idle is how long Next sleeps if there are no frames. Meanwhile 3 MiB arrive at 25 Gbit/s.
	idle = time.Millisecond
)

// ErrBusy is returned by Start if MaxCaptures captures already run.
var ErrBusy = fmt.Errorf("%d captures are already running on this device", MaxCaptures)

// Capture gets frames of a Hub until Stop. Poll, Next and Stop belong to one goroutine.
type Capture struct {
	hub     *Hub
	filter  Filter
	snap    int
	rings   []*frameRing
	first   []Frame
	started int
}

// Config configures a capture.
type Config struct {
	Filter
	Snap int // bytes kept of each frame; 0: all; the first frames of connections are always kept whole
	Ring int // bytes of the ring for each Port, a power of two; 0: DefaultRing
	// Decrypted adds the frames of the Ports that Hub.Decrypted returned.
	Decrypted bool
}

// Start starts a capture.
func (h *Hub) Start(cfg Config) (*Capture, error) {
	if cfg.Ring == 0 {
		cfg.Ring = DefaultRing
	}
	if cfg.Ring&(cfg.Ring-1) != 0 || cfg.Snap < 0 {
		return nil,
			errors.New("capture: the ring is not a power of two, or the frame length is negative")
	}
	cfg.Flows = slices.Clone(cfg.Flows)
	if cfg.Snap == 0 {
		cfg.Snap = 1 << 30
	}
	c := &Capture{hub: h, filter: cfg.Filter, snap: cfg.Snap}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.ports {
		if l := p.rings.Load(); l != nil && len(*l) >= MaxCaptures {
			return nil, ErrBusy
		}
	}
	hidden := map[string]bool{}
	for _, p := range h.ports {
		if p.decrypted && !cfg.Decrypted {
			hidden[p.name] = true
			continue
		}
		r := &frameRing{capture: c, port: p, buf: make([]byte, cfg.Ring)}
		c.rings = append(c.rings, r)
		p.attach(func(l []*frameRing) []*frameRing { return append(l, r) })
	}
	c.first = slices.DeleteFunc(h.starts.frames(&c.filter), func(f Frame) bool {
		return hidden[f.Port]
	})
	slices.SortStableFunc(c.first, func(a, b Frame) int { return cmp.Compare(a.Time, b.Time) })
	c.started = len(c.first)
	return c, nil
}

// Stop stops the capture. Frames already captured can still be read.
func (c *Capture) Stop() {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	for _, r := range c.rings {
		r.port.attach(func(l []*frameRing) []*frameRing {
			return slices.DeleteFunc(l, func(x *frameRing) bool { return x == r })
		})
	}
}

// Ports returns the names of the Ports that the capture covers.
func (c *Capture) Ports() (names []string) {
	for _, r := range c.rings {
		names = append(names, r.port.name)
	}
	return names
}

// Dropped returns the number of frames that the capture missed on a Port, in the order of Ports.
func (c *Capture) Dropped(port int) uint64 { return c.rings[port].dropped.Load() }

// Seen returns the number of frames on a Port that passed the filter since the start, including missed ones.
func (c *Capture) Seen(port int) uint64 { return c.rings[port].seen.Load() }

// StartFrames returns the number of kept frames with which the capture began: the first frames of connections that
// started before it.
func (c *Capture) StartFrames() int { return c.started }

// Poll returns the next frame, or false if there is none now. Its Data is valid until the next call.
func (c *Capture) Poll() (f Frame, ok bool) {
	if len(c.first) > 0 {
		f, c.first = c.first[0], c.first[1:]
		return f, true
	}
	var next *frameRing
	for _, r := range c.rings {
		if at, ok := r.peek(); ok && (next == nil || at < next.at) {
			next, r.at = r, at
		}
	}
	if next == nil {
		return f, false
	}
	return next.pop(), true
}

// Next is Poll that waits. It fails when ctx is done.
func (c *Capture) Next(ctx context.Context) (Frame, error) {
	for {
		if f, ok := c.Poll(); ok {
			return f, nil
		}
		select {
		case <-ctx.Done():
			return Frame{}, context.Cause(ctx)
		case <-time.After(idle):
		}
	}
}

// frameRing holds frames between the worker of a Port and a capture:
//
//	 0      8         12       16
//	+------+---------+--------+-----------------+
//	| time | on wire | kept   | data ...        |   kept has the direction in its top bit
//	+------+---------+--------+-----------------+
type frameRing struct {
	capture *Capture
	port    *Port
	buf     []byte
	out     []byte // memory of the frame that pop returned last
	at      int64  // time of the next frame, for Poll
	_       [64]byte
	head    atomic.Uint64 // bytes read since the start; written by the reader
	_       [64]byte
	tail    atomic.Uint64 // bytes written since the start; written by the worker
	seen    atomic.Uint64
	dropped atomic.Uint64
}

const (
	recordLen = 16
	sentBit   = 1 << 31
)

// put adds a frame, or counts it as dropped if there is no room. Only the worker calls it.
func (r *frameRing) put(now int64, d Direction, b []byte) {
	r.seen.Add(1)
	kept := min(len(b), r.capture.snap)
	tail := r.tail.Load()
	if uint64(recordLen+kept) > uint64(len(r.buf))-(tail-r.head.Load()) {
		r.dropped.Add(1)
		return
	}
	var h [recordLen]byte
	binary.NativeEndian.PutUint64(h[:], uint64(now))
	binary.NativeEndian.PutUint32(h[8:], uint32(len(b)))
	word := uint32(kept)
	if d == Tx {
		word |= sentBit
	}
	binary.NativeEndian.PutUint32(h[12:], word)
	r.write(tail, h[:])
	r.write(tail+recordLen, b[:kept])
	r.tail.Store(tail + uint64(recordLen+kept))
}

func (r *frameRing) write(at uint64, b []byte) {
	n := copy(r.buf[at&uint64(len(r.buf)-1):], b)
	copy(r.buf, b[n:])
}

func (r *frameRing) read(at uint64, b []byte) {
	n := copy(b, r.buf[at&uint64(len(r.buf)-1):])
	copy(b[n:], r.buf)
}

// peek returns the time of the next frame.
func (r *frameRing) peek() (int64, bool) {
	head := r.head.Load()
	if head == r.tail.Load() {
		return 0, false
	}
	var h [8]byte
	r.read(head, h[:])
	return int64(binary.NativeEndian.Uint64(h[:])), true
}

// pop removes the next frame. There must be one.
func (r *frameRing) pop() Frame {
	head := r.head.Load()
	var h [recordLen]byte
	r.read(head, h[:])
	word := binary.NativeEndian.Uint32(h[12:])
	kept := int(word &^ sentBit)
	f := Frame{Time: int64(binary.NativeEndian.Uint64(h[:])), Port: r.port.name,
		Length: int(binary.NativeEndian.Uint32(h[8:]))}
	if word&sentBit != 0 {
		f.Direction = Tx
	}
	if cap(r.out) < kept {
		r.out = make([]byte, kept)
	}
	f.Data = r.out[:kept]
	r.read(head+recordLen, f.Data)
	r.head.Store(head + uint64(recordLen+kept))
	return f
}
