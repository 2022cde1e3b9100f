package stack

import (
	"xwarp/tcp/ip"
	"xwarp/tcp/tick"
)

// SetMAC says that the interface has another Ethernet address. Frames are sent from it, and taken when they are
// for it, from now on.
func (s *Stack) SetMAC(mac [6]byte) {
	if mac == s.cfg.MAC {
		return
	}
	s.cfg.MAC = mac
	for _, e := range s.conns {
		e.frame.setSource(mac)
		e.expect.init(&s.cfg, &e.tuple, ip.ProtoTCP)
		e.protect(e.flow)
	}
}

// SetMTU says that the interface has another MTU, which is at least MinMTU: no longer packet leaves from now on.
// Connections find out by themselves when longer ones may again.
func (s *Stack) SetMTU(mtu int, now tick.Time) {
	lower := mtu < s.cfg.MTU
	s.cfg.MTU = mtu
	for _, e := range s.conns {
		inner := e.flow.innerMTU(mtu, e.frame.v6)
		if lower && e.conn.Info(now).PathMTU > inner {
			e.conn.PathMTU(inner, now)
			s.mark(e)
		}
	}
}

// followRoom bounds the segments that all connections send next to the frames that the port takes since the last Flush,
// which may change that.
func (s *Stack) followRoom(now tick.Time) {
	room := s.port.Info().TxRoom
	if room == s.room {
		return
	}
	s.room = room
	for _, e := range s.conns {
		e.limitSegments(now)
	}
}

// limitSegments bounds the segments of e to the frames that the port takes, sealed where they are.
func (e *Endpoint) limitSegments(now tick.Time) {
	e.conn.LimitSegments(e.flow.innerMTU(e.stack.room-e.frame.ipAt, e.frame.v6), now)
}

// Using returns how many connections and listeners have a local address.
func (s *Stack) Using(a ip.Addr) (n int) {
	for t := range s.conns {
		if t.Local == a {
			n++
		}
	}
	for k := range s.listeners {
		if k.addr == a {
			n++
		}
	}
	return n
}
