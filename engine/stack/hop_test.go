package stack

import (
	"encoding/binary"
	"errors"
	"testing"

	"xwarp/tcp"
	"xwarp/tcp/ip"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// TestIdleHop: consecutive connections to a host resolve its address only once. A new connection requests it again
// after HopRetry. A hop without a connection is forgotten after some time, a hop in use is not.
func TestIdleHop(t *testing.T) {
	h := newHost(t, nil)
	h.r.slow = true
	dst, mac := v4(192, 0, 2, 9), [6]byte{2, 0, 0, 0, 0, 1}
	connection := func(dst ip.Addr, asked int, known bool) *Endpoint {
		t.Helper()
		e := &Endpoint{stack: h.s, ended: true, class: &h.s.common} // has nothing to send
		e.setHop(h.s.hopFor(dst, h.now), h.now)
		if len(h.r.asked) != asked || e.hop.known != known {
			t.Fatalf("asked %d times, known %t; want %d, %t", len(h.r.asked), e.hop.known, asked,
				known)
		}
		return e
	}
	e, other := connection(dst, 1, false), connection(dst, 1, false)
	h.s.SetHop(dst, mac, nil)
	e.setHop(nil, h.now)
	other.setHop(nil, h.now)
	connection(dst, 1, true).setHop(nil, h.now)
	mac[5] = 2 // the neighbour table changed while the hop was unused
	h.s.SetHop(dst, mac, nil)
	h.now = h.now.Add(HopRetry)
	if e = connection(dst, 2, true); e.hop.mac != mac {
		t.Errorf("address % x, want % x", e.hop.mac, mac)
	}
	h.now = h.now.Add(2 * HopIdle)
	h.s.Step(h.now)
	if h.s.hops[dst] != e.hop {
		t.Error("a hop in use is forgotten")
	}
	e.setHop(nil, h.now)
	h.settle()
	if len(h.s.hops) != 0 || len(h.r.followed) != 0 || len(h.s.idle.near) != 0 {
		t.Errorf("%d hops are kept, %d are followed", len(h.s.hops), len(h.r.followed))
	}
}

// TestHopsHaveBounds: hops without a connection stay within the maxima for one network and for all. The next hop to a
// legitimate peer still finds a place.
func TestHopsHaveBounds(t *testing.T) {
	h := newHost(t, nil)
	h.listen(ListenConfig{Conn: tcp.Config{KeepaliveIdle: -1}, Cookies: tcp.CookiesAlways})
	h.r.slow = true
	for i := range 3 * MaxHops {
		h.give(frame(macs[1], tuple(v4(10, byte(i>>16), byte(i>>8), byte(i)), 1000),
			wire.Header{Seq: 1, Flags: wire.SYN}))
		h.give(frame(macs[1], tcp.Tuple{Local: ip.Addr{0x20, 1, 15: byte(i), 14: byte(i >> 8)},
			Remote: ip.Addr{0xfd, 15: 1}, RemotePort: 7},
			wire.Header{Seq: 1, Flags: wire.SYN}))
	}
	if n := len(h.s.hops); n != MaxHops || len(h.r.followed) != n || h.s.idle.all.Len() != n {
		t.Errorf("%d hops, %d followed, %d idle; want %d", n, len(h.r.followed), h.s.idle.all.Len(),
			MaxHops)
	}
	if n := h.s.idle.near[network(ip.Addr{0x20, 1})].Len(); n != MaxHopsOfNetwork {
		t.Errorf("one network has %d hops, want %d", n, MaxHopsOfNetwork)
	}
	if h.s.held > MaxHeld || h.s.held > len(h.s.hops) {
		t.Errorf("%d segments are held", h.s.held)
	}
	h.r.slow = false
	if _, out := h.connect(tuple(v4(198, 51, 100, 9), 1000)); len(out) == 0 && h.s.Len() != 1 {
		t.Error("an honest peer is not answered")
	}
	h.settle()
	if len(h.s.hops) != 1 || h.s.held != 0 {
		t.Errorf("%d hops and %d held segments are left beside one connection", len(h.s.hops),
			h.s.held)
	}
}

// TestAnswersGoToTheHop: SYN-ACKs, including those of cookies, and resets go to the next hop that the resolver returns,
// and wait for it. A station that spoofs the IP address of another gets nothing.
func TestAnswersGoToTheHop(t *testing.T) {
	attacker := [6]byte{2, 0, 0, 0, 0, 0x66}
	for _, c := range []struct {
		name  string
		mode  tcp.CookieMode
		flags wire.Flags
		want  wire.Flags
	}{
		{"SYN", tcp.CookiesNever, wire.SYN, wire.SYN | wire.ACK},
		{"SYN, with cookies", tcp.CookiesAlways, wire.SYN, wire.SYN | wire.ACK},
		{"ACK for a listener", tcp.CookiesNever, wire.ACK, wire.RST},
		{"ACK for nobody", tcp.CookiesNever, wire.ACK | wire.PSH, wire.RST},
	} {
		h := newHost(t, nil)
		h.listen(ListenConfig{Cookies: c.mode})
		h.r.slow = true
		at := tuple(v4(10, 1, 0, 5), 2000)
		if c.flags.Has(wire.PSH) {
			at.RemotePort = 9
		}
		if out := h.give(frame(attacker, at, wire.Header{Seq: 1, Ack: 1, Flags: c.flags})); len(
			out) != 0 {
			t.Errorf("%s: a reply to % x before the hop is resolved", c.name, out[0][:6])
		}
		h.s.SetHop(at.Local, macs[1], nil)
		out := h.give(nil)
		if len(out) != 1 || [6]byte(out[0]) != macs[1] || !flagsOf(out[0]).Has(c.want) {
			t.Errorf("%s: %d frames leave when it is known, want one with %v", c.name, len(out),
				c.want)
		}
		if out := h.give(frame(attacker, at, wire.Header{Seq: 1, Ack: 1, Flags: c.flags})); len(
			out) != 1 || [6]byte(out[0]) != macs[1] {
			t.Errorf("%s: the second answer: % x", c.name, out)
		}
	}
}

// TestManySYNsBeforeTheHop: when the address of a peer that opens many connections at once is resolved, it gets
// MaxHeldOfHop SYN-ACKs. The others follow some seconds later. If the address cannot be resolved, nothing is held for
// it.
func TestManySYNsBeforeTheHop(t *testing.T) {
	h := newHost(t, nil)
	h.listen(ListenConfig{})
	h.r.slow = true
	peer := v4(198, 51, 100, 9)
	for range 2 {
		for port := range uint16(MaxHeldOfHop + 10) {
			h.give(frame(macs[1], tuple(peer, 1000+port), wire.Header{Seq: 1, Flags: wire.SYN}))
		}
	}
	h.s.SetHop(peer, macs[1], nil)
	if n := len(h.give(nil)); n != MaxHeldOfHop || h.s.held != 0 || h.s.Stats().DropNoHop != 20 {
		t.Errorf("%d answers, %d held, %d dropped", n, h.s.held, h.s.Stats().DropNoHop)
	}
	h.now = h.now.Add(4 * tick.Second)
	if n := len(h.give(nil)); n < 10 {
		t.Errorf("%d answers some seconds later: those without room are not sent again", n)
	}
	dead := v4(198, 51, 100, 10)
	h.give(frame(macs[1], tuple(dead, 1), wire.Header{Seq: 1, Flags: wire.SYN}))
	h.s.SetHop(dead, [6]byte{}, errors.New("no answer to ARP"))
	if h.s.held != 0 {
		t.Error("an answer waits for a hop that was given up")
	}
}

// failing keeps the error that a connection ended with.
type failing struct {
	endless
	e   *Endpoint
	err error
}

func (u *failing) Event(ev tcp.Events, _ tick.Time) {
	if ev&tcp.Ended != 0 {
		u.err = u.e.Err()
	}
}

// TestSilentHop: a connection reports the resolver's error while its next hop does not answer, also if it had answered
// before. The error of a connection that times out has it too.
func TestSilentHop(t *testing.T) {
	h := newHost(t, nil)
	h.r.slow = true
	dst, silent := v4(198, 51, 100, 9), errors.New("no answer to ARP")
	at := tcp.Tuple{Local: v4(192, 0, 2, 1), Remote: dst, LocalPort: 1024, RemotePort: 7}
	u := &failing{endless: endless{idle: true}}
	e, err := h.s.Connect(at, &tcp.Config{}, u, h.now)
	u.e = e
	if err != nil {
		t.Fatal(err)
	}
	for i, answer := range []error{nil, silent, silent, nil, silent} {
		if i > 0 {
			h.s.SetHop(dst, macs[1], answer)
		}
		if got := e.Obstacle(); got != answer {
			t.Errorf("step %d: the obstacle is %v, want %v", i, got, answer)
		}
	}
	for range 600 {
		h.now = h.now.Add(tick.Second)
		h.give(nil)
	}
	if !errors.Is(u.err, tcp.CauseTimeout) || !errors.Is(u.err, silent) {
		t.Errorf("the connection ended with: %v", u.err)
	}
}

// TestEstablishedFromAnyStation: a connection accepts a segment from another station than its next hop, because a path
// may change in one direction only, as with two routers. The reply goes to the next hop.
func TestEstablishedFromAnyStation(t *testing.T) {
	h := newHost(t, nil)
	h.listen(ListenConfig{Accept: func(*tcp.Tuple) (Upper, error) {
		return &endless{idle: true}, nil
	}})
	at := tuple(v4(198, 51, 100, 9), 1000)
	ack, _ := h.connect(at)
	hdr := wire.Header{Seq: 1001,
		Ack:   seq.Num(binary.BigEndian.Uint32(ack[ip.EthernetLen+ip.Len4+8:])),
		Flags: wire.ACK | wire.FIN}
	f := frame([6]byte{2, 0, 0, 0, 0, 0x77}, at, hdr)
	out := h.give(f)
	if len(out) == 0 || [6]byte(out[0]) != macs[1] {
		t.Errorf("the reply to a FIN from another router is % x", out)
	}
}

// TestDoubtedHop: a peer that acknowledges nothing may have moved. After the second consecutive timeout the resolver
// must confirm its hop: TCP's negative advice to IP (RFC 9293, 3.8.3, R1).
//
//req:rfc9293-MUST-20-2
func TestDoubtedHop(t *testing.T) {
	p := newPair(t, 0, false, tcp.Config{}, [2]Upper{&endless{}, &endless{}})
	asked := p.s[0].cfg.Resolver.(*resolver)
	p.lose = func(int, []byte) bool { return true }
	before := len(asked.asked)
	for range 10 {
		p.turn()
	}
	if got := len(asked.asked) - before; got != 0 {
		t.Errorf("confirmed %d times before any timeout", got)
	}
	for p.e.conn.LossCounters().Timeouts < 2 {
		p.now = max(p.now, p.s[0].Deadline())
		p.turn()
	}
	if len(asked.asked) == before {
		t.Error("not confirmed after two timeouts")
	}
}
