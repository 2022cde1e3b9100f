// Package monitor captures the frames that the ring.Ports of a device receive and send while the device works. tcpdump
// cannot see the frames of AF_XDP sockets.
//
// A Hub decorates the Ports. Without a capture it only keeps the first frames of each connection, which decoders need:
// the TCP handshake and the start-up of MPA (RFC 5044, 7.1). For other frames it only checks the TCP flags. A Capture
// starts with the kept frames and continues with the current ones, through one bounded ring for each Port. A slow
// reader never delays a worker: it misses frames, which are counted.
package monitor

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"xwarp/ring"
	"xwarp/ring/gso"
	"xwarp/tcp/ip"
)

// Direction is the direction of a frame.
type Direction uint8

// The directions.
const (
	Rx Direction = iota
	Tx
)

// Hub holds the state that the Ports of a device share.
type Hub struct {
	clock  func() int64
	starts starts

	mu    sync.Mutex
	ports []*Port
}

// NewHub creates a Hub. clock returns nanoseconds since 1970; nil means the clock of the system.
func NewHub(clock func() int64) *Hub {
	if clock == nil {
		clock = func() int64 { return time.Now().UnixNano() }
	}
	h := &Hub{clock: clock}
	h.starts.init()
	return h
}

// Port is a decorated ring.Port.
type Port struct {
	ring.Port
	hub   *Hub
	name  string
	rings atomic.Pointer[[]*frameRing] // of running captures; nil: none
	buf   []byte

	decrypted bool // see Hub.Decrypted
}

// Wrap decorates the Port of a queue. name is the Port of its frames in captures.
func (h *Hub) Wrap(p ring.Port, name string) *Port {
	return h.add(&Port{Port: p, hub: h, name: name})
}

func (h *Hub) add(p *Port) *Port {
	h.mu.Lock()
	h.ports = append(h.ports, p)
	h.mu.Unlock()
	return p
}

// Decrypted returns a Port that neither receives nor sends: the caller passes it decrypted frames through Show, which
// the Ports of the queues carry encrypted. Captures include these frames only with Config.Decrypted.
func (h *Hub) Decrypted(name string) *Port {
	return h.add(&Port{hub: h, name: name, decrypted: true})
}

// Watches reports whether the caller should pass the frame of a TCP segment to Show. segment begins with the TCP
// header.
func (p *Port) Watches(segment []byte) bool {
	return p.rings.Load() != nil || p.hub.starts.opening.Load() != 0 ||
		len(segment) > tcpFlags && segment[tcpFlags]&(fin|syn|rst) != 0
}

// Show passes a frame to captures, and keeps it if it is one of the first frames of a connection. sent is its
// direction.
func (p *Port) Show(frame []byte, sent bool) {
	d := Rx
	if sent {
		d = Tx
	}
	if s, ok := parse(frame); p.isWatched(&s, ok, frame) {
		p.onFrame(&s, ok, frame, d)
	}
}

// Recv implements ring.Port.
func (p *Port) Recv(batch []ring.Packet) int {
	n := p.Port.Recv(batch)
	for i := range batch[:n] {
		k := &batch[i]
		b := k.Frag(0)
		if p.isUnwatched(b) {
			continue
		}
		s, ok := parse(b)
		if !p.isWatched(&s, ok, b) {
			continue
		}
		if k.NumFrags() > 1 {
			p.buf = k.AppendTo(p.buf[:0])
			b = p.buf
		}
		p.onFrame(&s, ok, b, Rx)
	}
	return n
}

// Send implements ring.Port.
func (p *Port) Send(b ring.TxBuf, n int) {
	if n >= 0 && n <= len(b.Data) && !p.isUnwatched(b.Data[:n]) {
		p.onSent(b.Data[:n])
	}
	p.Port.Send(b, n)
}

// onSent passes a sent frame to onFrame if it is watched.
func (p *Port) onSent(b []byte) {
	s, ok := parse(b)
	if p.isWatched(&s, ok, b) {
		p.onFrame(&s, ok, b, Tx)
	}
}

// SendBlock implements ring.Port. Captures show the segments into which the kernel will cut the block.
func (p *Port) SendBlock(b []byte, s ring.Shape) {
	if !p.isUnwatched(b) {
		cut := gso.Shape(s)
		for i := range cut.Segments(len(b)) {
			p.buf = cut.Segment(p.buf[:0], b, i)
			p.onSent(p.buf)
		}
	}
	p.Port.SendBlock(b, s)
}

// isUnwatched is the fast path for most frames: it reports whether the frame that begins with b is certainly not
// captured, because no capture runs, no connection starts, and it is a segment in the middle of a connection.
func (p *Port) isUnwatched(b []byte) bool {
	if p.rings.Load() != nil || p.hub.starts.opening.Load() != 0 || len(b) < quietLen4 {
		return false
	}
	switch {
	case b[12] == 0x08 && b[13] == 0x00 && b[14] == 0x45 && b[23] == ip.ProtoTCP:
		return b[14+ip.Len4+tcpFlags]&(fin|syn|rst) == 0
	case b[12] == 0x86 && b[13] == 0xdd && b[20] == ip.ProtoTCP && len(b) >= quietLen6:
		return b[14+ip.Len6+tcpFlags]&(fin|syn|rst) == 0
	}
	return false
}

// quietLen4 and quietLen6 are the numbers of bytes that isUnwatched reads of a frame with IPv4 or IPv6.
const (
	quietLen4 = 14 + ip.Len4 + tcpFlags + 1
	quietLen6 = 14 + ip.Len6 + tcpFlags + 1
)

// isWatched reports whether a capture runs, or whether the frame that begins with b begins or ends a connection or may
// belong to one in start-up.
func (p *Port) isWatched(s *segment, isTCP bool, b []byte) bool {
	return p.rings.Load() != nil || isTCP && p.hub.starts.watches(s, b)
}

// onFrame passes the whole frame b to the captures, and to starts if it is watched. s is valid if isTCP is true.
func (p *Port) onFrame(s *segment, isTCP bool, b []byte, d Direction) {
	now := p.hub.clock()
	if isTCP && p.hub.starts.watches(s, b) {
		p.hub.starts.onFrame(s, b, d, now, p.name)
	}
	rings := p.rings.Load()
	if rings == nil {
		return
	}
	for _, r := range *rings {
		if r.capture.filter.match(s, isTCP, b, d) {
			r.put(now, d, b)
		}
	}
}

// attach replaces the list of p's rings by the result of change, which gets a copy of the list. The caller holds
// hub.mu.
func (p *Port) attach(change func([]*frameRing) []*frameRing) {
	var list []*frameRing
	if old := p.rings.Load(); old != nil {
		list = slices.Clone(*old)
	}
	if list = change(list); len(list) == 0 {
		p.rings.Store(nil)
		return
	}
	p.rings.Store(&list)
}
