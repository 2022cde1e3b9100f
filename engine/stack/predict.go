package stack

import (
	"encoding/binary"
	"math/bits"

	"xwarp/ring"
	"xwarp/tcp"
	"xwarp/tcp/octets"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// expect is what the frames of a connection have in common as they arrive.
type expect struct {
	src, dst [16]byte // IPv4 addresses lie side by side at the front of src
	ports    [4]byte
}

func (x *expect) init(t *tcp.Tuple) {
	*x = expect{src: t.Remote, dst: t.Local}
	if t.Remote.Is4() {
		src, dst := t.Remote.As4(), t.Local.As4()
		x.src = [16]byte{}
		copy(x.src[:], append(src[:], dst[:]...))
	}
	binary.BigEndian.PutUint16(x.ports[:], t.RemotePort)
	binary.BigEndian.PutUint16(x.ports[2:], t.LocalPort)
}

// Lengths of a TCP header without options and of one with timestamps alone.
const (
	tcpLen   = wire.HeaderLen
	tcpTSLen = wire.HeaderLen + wire.TimestampsLen
)

// predicted takes the frame p when it is the one that nearly every frame is: the next octets of the
// connection found last, with a header that has nothing but them. It makes all checks of input, whose work it
// does with fewer steps, and false means that nothing happened: the frame is input's.
func (s *Stack) predicted(p *ring.Packet, now tick.Time) bool {
	e := s.last.ep
	if e == nil || s.general || !e.started || p.NumFrags() == 0 {
		return false
	}
	b := p.Frag(0)
	at := e.frame.n
	if len(b) < at+tcpTSLen || !e.frame.matches(b, &s.cfg.MAC, &e.expect, p.Len()) {
		return false
	}
	segment := p.Len() - at
	h := (*[tcpTSLen]byte)(b[at:])
	if [4]byte(h[:4]) != e.expect.ports {
		return false
	}
	head := s.seg.DecodeUsual(h)
	if head == 0 {
		return false
	}
	s.seg.Len, s.seg.ECN = segment-head, tcp.NotECT
	s.serve(e)
	if segment == head {
		return e.predictedAck(h, head, now)
	}
	if !e.conn.Predicted(&s.seg) {
		return false
	}
	pieces := s.pieces[:1]
	pieces[0] = b[at+head:]
	for i := 1; i < p.NumFrags(); i++ {
		pieces = append(pieces, p.Frag(i))
	}
	crcs := e.summer != nil && e.summer.WantsCRC(s.seg.Seq, pieces, s.seg.Len)
	crc, ok := checksum(pieces, wire.SumUsual(h, head, addLength(e.frame.sum, segment)), crcs)
	if !ok {
		return false
	}
	s.stats.RxFrames++
	s.stats.RxOctets += uint64(p.Len())
	e.receiveNext(&s.seg, pieces, crc, crcs, now)
	return true
}

// predictedAck is predicted for a segment that is the header of n octets in h and stack.seg.
func (e *Endpoint) predictedAck(h *[tcpTSLen]byte, n int, now tick.Time) bool {
	s := e.stack
	if !e.conn.PredictedAck(&s.seg) ||
		wire.Fold(wire.SumUsual(h, n, addLength(e.frame.sum, n))) != 0xffff {
		return false
	}
	s.stats.RxFrames++
	s.stats.RxOctets += uint64(e.frame.n + n)
	e.conn.InputAck(&s.seg, now)
	s.mark(e)
	return true
}

// matches reports whether the Ethernet and IP headers of b are those of the connection with template f: a
// frame of n octets for mac that ends with the IP packet, without options, extensions or fragments, the
// header's checksum right.
func (f *template) matches(b []byte, mac *[6]byte, x *expect, n int) bool {
	if [6]byte(b) != *mac || f.ipAt != etherLen && !f.sameVLAN(b) {
		return false
	}
	kind, h, n := binary.BigEndian.Uint16(b[f.ipAt-2:]), b[f.ipAt:], n-f.ipAt
	if f.v6 {
		h := (*[ipv6Len]byte)(h)
		return kind == typeIPv6 && h[0]>>4 == 6 && h[6] == protoTCP &&
			int(binary.BigEndian.Uint16(h[4:]))+ipv6Len == n &&
			[16]byte(h[8:24]) == x.src && [16]byte(h[24:40]) == x.dst
	}
	v := (*[ipv4Len]byte)(h)
	const fragment = 0x3fff // more fragments follow, or an offset
	if kind != typeIPv4 || v[0] != 4<<4|ipv4Len/4 || v[9] != protoTCP ||
		int(binary.BigEndian.Uint16(v[2:])) != n ||
		binary.BigEndian.Uint16(v[6:])&fragment != 0 || [8]byte(v[12:20]) != [8]byte(x.src[:8]) {
		return false
	}
	sum, c := bits.Add64(binary.LittleEndian.Uint64(v[0:]), binary.LittleEndian.Uint64(v[8:]), 0)
	sum, c = bits.Add64(sum, uint64(binary.LittleEndian.Uint32(v[16:])), c)
	return wire.Fold(sum+c) == 0xffff
}

// sameVLAN reports whether b has the tag of the template's frames, of whatever priority.
func (f *template) sameVLAN(b []byte) bool {
	return binary.BigEndian.Uint16(b[12:]) == typeVLAN &&
		(binary.BigEndian.Uint16(b[14:])^binary.BigEndian.Uint16(f.hdr[14:]))&maxVLAN == 0
}

// checksum adds the payload to the sum of the pseudo header and the TCP header and reports whether the
// outcome is right. With crcs it returns the CRC32C of the payload. Pieces before the last of odd length are
// left to verify.
func checksum(pieces [][]byte, sum uint64, crcs bool) (crc uint32, ok bool) {
	for i, p := range pieces {
		if len(p)&1 != 0 && i < len(pieces)-1 {
			return 0, false
		}
		if crcs {
			crc, sum = octets.Sum(p, crc, sum)
		} else {
			sum = wire.Sum(p, sum)
		}
	}
	return crc, wire.Fold(sum) == 0xffff
}

// receiveNext is receive for a segment that tcp.Conn.Predicted holds for. crc is valid with crcs.
func (e *Endpoint) receiveNext(s *tcp.Segment, pieces [][]byte, crc uint32, crcs bool,
	now tick.Time) {
	e.conn.InputNext(s, now)
	kept := 0
	if crcs {
		kept = e.summer.OfferCRC(s.Seq, pieces, s.Len, crc)
	} else {
		kept = e.upper.Offer(s.Seq, pieces, s.Len)
	}
	e.conn.FinishNext(s, kept, now)
	e.advance()
	e.stack.mark(e)
}

// advance tells the layer above that the left edge moved.
func (e *Endpoint) advance() {
	if end := e.conn.RcvEnd(); end != e.rcvEnd {
		e.rcvEnd = end
		e.upper.Advance(end)
	}
}
