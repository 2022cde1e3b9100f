package stack

import (
	"encoding/binary"

	"xwarp/engine/esp"
	"xwarp/ring"
	"xwarp/tcp"
	"xwarp/tcp/ip"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// IPsec decides which connections are protected (RFC 4301, 4.4.1). It is called on the thread that owns the Stack and
// must not block.
type IPsec interface {
	// Prepare is called before the Stack opens a connection.
	Prepare(t *tcp.Tuple)
	// Flow returns the flow of a connection, or nil if it is not protected. During a connection the result may change
	// to another flow of its hosts with the same Shape; Stack.Move applies the change.
	Flow(t *tcp.Tuple) *Flow
	// Want reports that packets of f wait for an SA, or, if out is not nil, that out reached its soft limit. It is
	// called once until the next SetOut. The answer, now or later, is a call of Stack.SetOut.
	Want(f *Flow, out *esp.Out)
	// Expire runs the timers that are due, and Deadline returns when the next one is.
	Expire(now tick.Time)
	Deadline() tick.Time
}

// Flow has the connections between two hosts that share SAs. It belongs to one Stack.
type Flow struct {
	Shape esp.Shape
	// Local and Remote are the addresses of the SAs: in transport mode those of the connections, in tunnel mode those
	// of the outer header.
	Local, Remote ip.Addr
	// HideDSCP makes the DSCP of a tunnel's outer header 0 instead of that of the packet. The IPsec sets it with
	// SetOut.
	HideDSCP bool
	// Owner belongs to the IPsec that made the flow.
	Owner any

	out    *esp.Out // nil: none, and packets wait; only SetOut changes it
	wanted bool     // IPsec.Want was called since the last SetOut
}

// Out returns the SA that f sends with, or nil.
func (f *Flow) Out() *esp.Out { return f.out }

// Flow returns the flow of e, or nil if it is not protected.
func (e *Endpoint) Flow() *Flow { return e.flow }

// innerMTU returns the maximum packet length of a connection of f if packets may have mtu bytes. f may be nil.
func (f *Flow) innerMTU(mtu int, v6 bool) int {
	if f == nil {
		return mtu
	}
	return f.Shape.InnerMTU(mtu, v6)
}

// PlainObserver observes the frames of protected connections as if they were not protected.
type PlainObserver interface {
	Watches(segment []byte) bool // reports whether to call Show for a segment
	// Show is called with a frame, which is valid during the call. sent is true for a frame to be sent, and false for a
	// received one.
	Show(frame []byte, sent bool)
}

// inbound is an SA for receiving.
type inbound struct {
	sa   *esp.In
	flow *Flow
}

// saKey identifies an SA (RFC 4301, 4.1). Each receiver chooses the SPIs of its own addresses, so two SAs may share an
// SPI. The protocol is always ESP.
type saKey struct {
	dst ip.Addr
	spi uint32
}

// SetOut makes f send with out. If out is nil, connections wait, however long it takes (RFC 5044, 9.4).
func (s *Stack) SetOut(f *Flow, out *esp.Out) {
	if f.out != nil {
		if k := (saKey{f.Remote, f.out.SPI()}); s.outbound[k] == f {
			delete(s.outbound, k)
		}
	}
	f.out, f.wanted = out, false
	if out == nil {
		return
	}
	if s.outbound == nil {
		s.outbound = map[saKey]*Flow{}
	}
	s.outbound[saKey{f.Remote, out.SPI()}] = f
	for _, e := range s.byAge(func(e *Endpoint) bool { return e.flow == f }) {
		s.mark(e)
	}
}

// Move moves each protected connection to the flow that to returns for it, which must have the same hosts and Shape. If
// to returns nil, the connection keeps its flow. Move returns the number of moved connections.
func (s *Stack) Move(to func(*Endpoint) *Flow) (moved int) {
	for _, e := range s.byAge(func(e *Endpoint) bool { return e.flow != nil }) {
		if f := to(e); f != nil && f != e.flow {
			e.flow = f
			s.mark(e)
			moved++
		}
	}
	return moved
}

// AddIn accepts packets of an SA for connections of f only.
func (s *Stack) AddIn(f *Flow, in *esp.In) {
	if s.inbound == nil {
		s.inbound = map[saKey]inbound{}
	}
	s.inbound[saKey{f.Local, in.SPI()}] = inbound{in, f}
}

// RemoveIn stops accepting packets of in, which AddIn added.
func (s *Stack) RemoveIn(f *Flow, in *esp.In) {
	if k := (saKey{f.Local, in.SPI()}); s.inbound[k].sa == in {
		delete(s.inbound, k)
	}
}

// flowOf returns the flow of a connection, or nil if it is not protected.
func (s *Stack) flowOf(t *tcp.Tuple) *Flow {
	if s.cfg.IPsec == nil {
		return nil
	}
	return s.cfg.IPsec.Flow(t)
}

// hopTo returns the hop to t.Remote, or to the other end of its tunnel.
func (s *Stack) hopTo(t *tcp.Tuple, now tick.Time) *hop {
	if f := s.flowOf(t); f != nil {
		return s.hopFor(f.Remote, now)
	}
	return s.hopFor(t.Remote, now)
}

// ready reports whether packets of f can be sent. If it has no SA, or one that must be replaced, it calls IPsec.Want.
func (s *Stack) ready(f *Flow) bool {
	if f == nil {
		return true
	}
	if f.out == nil {
		s.stats.NoSA++
	}
	if (f.out == nil || f.out.NeedsRekey()) && !f.wanted {
		f.wanted = true
		s.cfg.IPsec.Want(f, f.out)
	}
	return f.out != nil
}

// headroom is the room before a frame in its slot, for the headers that sealing adds.
func (f *Flow) headroom() int {
	if f.Shape.Mode == esp.Transport {
		return esp.HeaderLen
	}
	return esp.HeaderLen + ipLen(f.Shape.OuterV6)
}

// ipLen is the length of an IP header without options.
func ipLen(v6 bool) int {
	if v6 {
		return ip.Len6
	}
	return ip.Len4
}

// emitSealed is Endpoint.emit for a protected connection.
func (e *Endpoint) emitSealed(buf ring.TxBuf, o *tcp.Out) {
	b := buf.Data[e.flow.headroom():]
	at := e.frame.build(b, o, e.hop.mac)
	sum := e.fill(b[at:], o)
	e.stack.putSealed(buf, e.flow, &e.frame, e.frame.finish(b, at, o, sum))
}

// replySealed is Stack.reply for a protected connection.
func (s *Stack) replySealed(buf ring.TxBuf, f *Flow, t *tcp.Tuple, o *tcp.Out, mac [6]byte) {
	if !s.ready(f) {
		s.port.CancelTx(buf)
		return
	}
	var frame template
	s.initReply(&frame, t)
	b := buf.Data[f.headroom():]
	s.putSealed(buf, f, &frame, frame.finish(b, frame.build(b, o, mac), o, 0))
}

// putSealed seals the frame of n bytes after the headroom of buf and passes it to the port. At the SA's hard limit the
// frame is lost, and TCP retransmits it with the next SA.
func (s *Stack) putSealed(buf ring.TxBuf, f *Flow, frame *template, n int) {
	if b := buf.Data[f.headroom():]; s.cfg.Plain != nil && s.cfg.Plain.Watches(b[frame.n:n]) {
		s.cfg.Plain.Show(b[:n], true)
	}
	size, err := f.seal(buf.Data, frame, n, s.cfg.HopLimit)
	if err == nil {
		s.put(buf, size)
		return
	}
	s.port.CancelTx(buf)
	s.SetOut(f, nil)
	f.wanted = true
	s.cfg.IPsec.Want(f, nil)
}

// seal seals the frame of n bytes that follows the headroom of b. The headers that are not encrypted move to the front
// of b, and ESP follows them. size is the length of the sealed frame.
func (f *Flow) seal(b []byte, frame *template, n int, hops uint8) (size int, err error) {
	head, ipAt := f.headroom(), frame.ipAt
	if f.Shape.Mode == esp.Transport {
		copy(b, b[head:head+frame.n])
		size, err = f.out.Seal(b[frame.n:], n-frame.n, ip.ProtoTCP)
		if err != nil {
			return 0, err
		}
		setPayload(b[ipAt:frame.n], ip.ProtoESP, size)
		return frame.n + size, nil
	}
	inner := b[head+ipAt:]
	outer := ip.Header{Src: f.Local, Dst: f.Remote, V6: f.Shape.OuterV6, Proto: ip.ProtoESP,
		TTL: hops, DF: true, PayloadLen: n - ipAt + esp.Overhead(n-ipAt)}
	outer.TOS = inner[1] // copy DSCP (RFC 4301, 5.1.2.1) and ECN (RFC 6040, 4.1)
	if frame.v6 {
		outer.TOS = inner[0]<<4 | inner[1]>>4
	}
	if f.HideDSCP {
		outer.TOS &= 3
	}
	copy(b, b[head:head+ipAt])
	etherType := ip.TypeIPv4
	if f.Shape.OuterV6 {
		etherType = ip.TypeIPv6
	}
	binary.BigEndian.PutUint16(b[ipAt-2:], uint16(etherType))
	at := ipAt + outer.Put(b[ipAt:])
	size, err = f.out.Seal(b[at:], n-ipAt, nextHeader(frame.v6))
	return at + size, err
}

// nextHeader returns the next header field of ESP for a packet in tunnel mode.
func nextHeader(v6 bool) uint8 {
	if v6 {
		return esp.NextIPv6
	}
	return esp.NextIPv4
}

// setPayload changes the protocol and payload length in an IP header without options.
func setPayload(h []byte, proto uint8, n int) {
	if len(h) == ip.Len6 {
		binary.BigEndian.PutUint16(h[4:], uint16(n))
		h[6] = proto
		return
	}
	binary.BigEndian.PutUint16(h[2:], uint16(ip.Len4+n))
	h[9], h[10], h[11] = proto, 0, 0
	binary.BigEndian.PutUint16(h[10:], wire.Finish(wire.Sum(h, 0)))
}

// protect sets the flow of e. With a flow, e expects ESP packets between the flow's addresses.
func (e *Endpoint) protect(f *Flow) {
	e.flow = f
	if f != nil {
		e.expect.init(&e.stack.cfg, &tcp.Tuple{Local: f.Local, Remote: f.Remote}, ip.ProtoESP)
	}
}

// inputSealed processes a frame with the headers of e's flow.
func (s *Stack) inputSealed(e *Endpoint, p *ring.Packet, ecn tcp.ECN, now tick.Time) {
	pieces := p.Frags(s.pieces[:0])
	pieces[0] = pieces[0][e.expect.ipAt+ipLen(e.expect.v6):]
	near := e
	if e.flow.Shape.Mode == esp.Tunnel {
		near = nil
	}
	s.open(s.flat(pieces), e.flow.Local, e.flow.Remote, ecn, near, now)
}

// open processes the ESP packet b from remote to local. near is a connection between the hosts of the payload. If it is
// nil, s.ip is the IP header of the packet.
func (s *Stack) open(b []byte, local, remote ip.Addr, ecn tcp.ECN, near *Endpoint,
	now tick.Time) {
	spi, ok := esp.PacketSPI(b)
	in := s.inbound[saKey{local, spi}]
	if f := in.flow; !ok || f == nil || f.Remote != remote {
		if s.cfg.Stray == nil || !s.handOver(Stray{Tuple: tcp.Tuple{Local: local, Remote: remote},
			ESP: true, ECN: ecn, Payload: b}) {
			s.stats.DropNoSA++
		}
		return
	}
	payload, next, err := in.sa.Open(b)
	if err != nil {
		s.stats.DropESP++
		return
	}
	tunnel := in.flow.Shape.Mode == esp.Tunnel
	if tunnel {
		payload, ecn, ok = s.decapsulate(payload, next, ecn)
	} else if near == nil {
		s.ip.Proto, s.ip.PayloadLen = next, len(payload)
	}
	if !ok || !tunnel && next != ip.ProtoTCP || near == nil && s.ip.ValidTCP() != nil {
		s.stats.DropPolicy++
		return
	}
	if s.cfg.Plain != nil && s.cfg.Plain.Watches(payload) {
		s.showReceived(near, payload, ecn)
	}
	n := len(payload)
	s.seg.Len, s.seg.ECN = n, ecn
	var sum uint64
	if near != nil {
		sum = addLength(near.frame.sum, n)
	} else {
		sum = s.ip.PseudoSum(n)
	}
	s.via = in.flow
	s.segment(near, payload, 1, sum, now)
	s.via = nil
}

// showReceived shows a decrypted segment with the headers that it would have had unprotected. With near it is between
// near's hosts; otherwise s.ip is its IP header.
func (s *Stack) showReceived(near *Endpoint, segment []byte, ecn tcp.ECN) {
	h := ip.Header{Src: s.ip.Src, Dst: s.ip.Dst}
	e := ip.Ethernet{Dst: s.cfg.MAC, Type: ip.TypeIPv4}
	if near != nil {
		h.Src, h.Dst = near.tuple.Remote, near.tuple.Local
	}
	if h.V6 = !h.Src.Is4(); h.V6 {
		e.Type = ip.TypeIPv6
	}
	h.Proto, h.TTL, h.DF, h.TOS = ip.ProtoTCP, DefaultHopLimit, true, uint8(ecn)
	h.PayloadLen = len(segment)
	s.shown = append(s.shown[:0], make([]byte, e.Len()+h.Len())...)
	h.Put(s.shown[e.Put(s.shown):])
	s.shown = append(s.shown, segment...)
	s.cfg.Plain.Show(s.shown, false)
}

// quotable is the maximum age of a packet quoted by an ICMP error, in packets sent since.
const quotable = 1 << 16

// sealedTooBig lowers the path MTU of the connections of a flow one of whose ESP packets was too big for a router. The
// error is not authenticated, but its SPI and sequence number show that its sender saw a recent packet. Other ICMP
// errors about ESP packets have no effect (RFC 4301, 6.1.1): TCP's timers notice the loss. It returns false if the
// error is not about a flow here.
func (s *Stack) sealedTooBig(e *ip.ICMPError, now tick.Time) bool {
	f := s.outbound[saKey{e.Remote, e.SPI}]
	if f == nil || f.Local != e.Local {
		return false
	}
	s.stats.ICMP++
	if e.Kind != ip.PacketTooBig || !f.out.Sent(uint32(e.Seq), quotable) {
		return true
	}
	for _, c := range s.byAge(func(c *Endpoint) bool { return c.flow == f }) {
		v6 := c.frame.v6
		was := c.conn.Info(now).PathMTU
		sealed := f.Shape.SealedLen(was, v6)
		if e.MTU == 0 || e.MTU >= sealed { // it names no MTU, or the packets of c fit already
			continue
		}
		c.conn.PathMTU(f.Shape.InnerMTU(e.MTU, v6), now)
		s.mark(c)
	}
	return true
}

// decapsulate sets s.ip to the IP header of the TCP packet in b and returns the rest. next is the next header of ESP.
// It returns false if the packet must be dropped.
func (s *Stack) decapsulate(b []byte, next uint8, outer tcp.ECN) (segment []byte, ecn tcp.ECN,
	ok bool) {
	off, err := s.ip.Decode(b)
	if err != nil || next != nextHeader(s.ip.V6) || s.ip.Fragment || s.ip.Proto != ip.ProtoTCP {
		return nil, 0, false
	}
	inner, drop := esp.DecapsulateECN(uint8(outer), s.ip.TOS)
	return b[off : off+s.ip.PayloadLen], tcp.ECN(inner), !drop
}

// permitted reports whether the policy permits the segment being processed for e, or, if e is nil, for s.tuple: it came
// through an SA of the connection's flow, or in the clear if the connection has no flow (RFC 4301, 5.2).
func (s *Stack) permitted(e *Endpoint) bool {
	if e != nil {
		return e.flow == s.via
	}
	return s.flowOf(&s.tuple) == s.via
}
