package stack

import (
	"xwarp/tcp/ip"
	"xwarp/tcp/tick"
)

// SetMAC sets the MAC address of the interface. Frames are sent from it and accepted for it from now on.
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

// SetMTU sets the MTU of the interface, at least MinMTU. From now on, packets that are longer than mtu are not sent.
// After an increase, connections probe by themselves whether longer packets arrive.
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

// limitSegments limits the segments of e to the frame size of the port, after sealing if it is protected.
func (e *Endpoint) limitSegments(now tick.Time) {
	e.conn.LimitSegments(e.flow.innerMTU(e.stack.room-e.frame.ipAt, e.frame.v6), now)
}

// Using returns the number of connections and listeners whose local address is a. It does not count listeners for all
// addresses.
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
