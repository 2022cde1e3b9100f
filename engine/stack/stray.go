package stack

import (
	"xwarp/tcp"
	"xwarp/tcp/checksum"
	"xwarp/tcp/ip"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// Stray is a segment, ICMP error or ESP packet that may belong to another worker.
type Stray struct {
	Tuple tcp.Tuple     // of an ESP packet only the addresses
	ICMP  *ip.ICMPError // nil for a segment
	// ESP says that Payload is an ESP packet, received with ECN.
	ESP bool
	ECN tcp.ECN
	// Segment and Payload are valid during Config.Stray only. Keep copies them.
	Segment tcp.Segment
	Payload []byte
}

// Keep returns a copy of x that stays valid.
func (x *Stray) Keep() *Stray {
	c := *x
	c.Payload = append([]byte(nil), x.Payload...)
	if x.ICMP != nil {
		e := *x.ICMP
		c.ICMP = &e
	}
	return &c
}

// SYNACK reports whether x answers a SYN.
func (x *Stray) SYNACK() bool {
	return x.ICMP == nil && !x.ESP && x.Segment.Flags.Has(wire.SYN|wire.ACK)
}

func (s *Stack) stray(pieces [][]byte) bool {
	return s.handOver(Stray{Tuple: s.tuple, Segment: s.seg, Payload: s.flat(pieces)})
}

// handOver passes x to Config.Stray and reports whether it was taken.
func (s *Stack) handOver(x Stray) bool {
	s.strayed = x
	taken := s.cfg.Stray(&s.strayed)
	s.strayed.Payload = nil
	if taken {
		s.stats.HandedOver++
	}
	return taken
}

// Inject processes a frame handed over by another worker.
func (s *Stack) Inject(x *Stray, now tick.Time) {
	s.setCurrent(nil)
	defer s.contain(now)
	if x.ICMP != nil {
		if !s.DeliverICMP(&x.Tuple, x.ICMP, now) {
			s.stats.DropICMP++
		}
		return
	}
	if x.ESP {
		t := &x.Tuple
		s.ip = ip.Header{Src: t.Remote, Dst: t.Local, V6: !t.Remote.Is4()}
		s.open(x.Payload, t.Local, t.Remote, x.ECN, nil, now)
		return
	}
	s.seg, s.tuple = x.Segment, x.Tuple
	if s.flowOf(&s.tuple) != nil { // a segment handed over was not protected
		s.stats.DropPolicy++
		return
	}
	pieces := append(s.pieces[:0], x.Payload)
	if e := s.conns[s.tuple]; e != nil && !s.reuse(e, now) {
		s.setCurrent(e)
		e.receive(&s.seg, pieces, checksum.Known{}, now)
		return
	}
	s.unowned(pieces, now)
}

// DropStray counts a frame that could not be handed over, because the other worker's backlog was full.
func (s *Stack) DropStray() { s.stats.DropBacklog++ }

// DeliverICMP passes an ICMP error to its connections. It returns false if there is none here.
func (s *Stack) DeliverICMP(t *tcp.Tuple, e *ip.ICMPError, now tick.Time) bool {
	if e.SPI != 0 {
		return s.sealedTooBig(e, now)
	}
	c := s.conns[*t]
	if c == nil || c.flow != nil { // segments of a protected connection are never quoted
		return false
	}
	s.stats.ICMP++
	s.setCurrent(c)
	c.conn.ICMP(e, now)
	s.mark(c)
	return true
}

// Find returns the connection t, or nil.
func (s *Stack) Find(t *tcp.Tuple) *Endpoint { return s.conns[*t] }

// Withdraw silently forgets a connection whose SYN was answered on another worker's queue. It returns the initial
// sequence number for Resume there.
func (s *Stack) Withdraw(e *Endpoint, now tick.Time) seq.Num {
	iss := e.conn.SndUna()
	s.forget(e, now)
	return iss
}

// Resume is Connect with the initial sequence number of a withdrawn connection, on a Stack with the same secret.
func (s *Stack) Resume(t tcp.Tuple, cfg *tcp.Config, upper Upper, iss seq.Num, now tick.Time) (
	*Endpoint, error) {
	return s.connect(t, cfg, upper, iss, now)
}
