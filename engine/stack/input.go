package stack

import (
	"encoding/binary"
	"math/bits"

	"xwarp/ring"
	"xwarp/tcp"
	"xwarp/tcp/checksum"
	"xwarp/tcp/ip"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// input processes one frame. It keeps nothing of p.
func (s *Stack) input(p *ring.Packet, now tick.Time) {
	s.stats.RxFrames++
	s.rxLen = p.Len()
	s.stats.RxBytes += uint64(s.rxLen)
	// Most frames are from the hosts of the previous one, whose connection knows the expected headers.
	if e, b := s.last, p.Frag(0); e != nil {
		if ecn, ok := e.expect.matches(b, p.Len()); ok {
			if e.flow != nil {
				s.inputSealed(e, p, ecn, now)
				return
			}
			frags := 1
			for ; frags < p.NumFrags(); frags++ {
				s.pieces[frags] = p.Frag(frags)
			}
			n := p.Len() - e.frame.n
			s.seg.Len, s.seg.ECN = n, ecn
			s.segment(e, b[e.frame.n:], frags, addLength(e.frame.sum, n), now)
			return
		}
	}
	pieces := p.Frags(s.pieces[:0])
	s.setCurrent(nil)
	off, err := s.eth.Decode(pieces[0])
	switch {
	case err != nil:
		s.stats.DropMalformed++
		return
	case s.eth.Dst != s.cfg.MAC:
		s.stats.DropNotForUs++
		return
	case vlanOf(&s.eth) != int(s.cfg.VLAN&maxVLAN):
		s.stats.DropVLAN++
		return
	}
	pieces[0] = pieces[0][off:]
	off, err = s.ip.DecodeFirst(pieces[0], p.Len()-off)
	if err != nil {
		s.stats.DropMalformed++
		return
	}
	pieces[0] = pieces[0][off:]
	pieces = clip(pieces, s.ip.PayloadLen)
	if s.ip.Fragment {
		s.fragment(pieces, now)
		return
	}
	s.datagram(pieces, now)
}

// datagram processes the payload of the IP header s.ip.
func (s *Stack) datagram(pieces [][]byte, now tick.Time) {
	switch {
	case s.ip.Proto == ip.ProtoESP && s.cfg.IPsec != nil:
		s.open(s.flat(pieces), s.ip.Dst, s.ip.Src, tcp.ECN(s.ip.TOS&3), nil, now)
	case s.ip.Proto != ip.ProtoTCP:
		s.icmp(pieces, now)
	case s.ip.ValidTCP() != nil:
		s.stats.DropSource++
	default:
		s.seg.Len, s.seg.ECN = s.ip.PayloadLen, tcp.ECN(s.ip.TOS&3)
		s.segment(nil, pieces[0], len(pieces), s.ip.PseudoSum(s.seg.Len), now)
	}
}

// maxVLAN masks the VLAN identifier of a tag.
const maxVLAN = 0xfff

// vlanOf returns the VLAN of a frame, or 0 for none. A tag with identifier 0 only has a priority (IEEE 802.1Q, 9.6).
// For nested VLANs and service tags, which a stack cannot have, it returns -1.
func vlanOf(e *ip.Ethernet) int {
	vid := 0
	for _, tag := range e.VLAN[:e.NVLAN] {
		switch {
		case tag.ID() == 0:
		case vid != 0 || tag.TPID != ip.TypeVLAN:
			return -1
		default:
			vid = int(tag.ID())
		}
	}
	return vid
}

// VLANOf returns the VLAN of the frame that begins with b, or 0 for none. It returns false for frames that no stack
// accepts: malformed ones, nested VLANs and service tags.
func VLANOf(b []byte) (vlan uint16, ok bool) {
	var e ip.Ethernet
	if _, err := e.Decode(b); err != nil {
		return 0, false
	}
	id := vlanOf(&e)
	return uint16(id), id >= 0
}

// flat returns pieces as one, copied if there are several.
func (s *Stack) flat(pieces [][]byte) []byte {
	if len(pieces) == 1 {
		return pieces[0]
	}
	s.scratch = s.scratch[:0]
	for _, p := range pieces {
		s.scratch = append(s.scratch, p...)
	}
	return s.scratch
}

// fragment keeps a fragment until its datagram is complete.
func (s *Stack) fragment(pieces [][]byte, now tick.Time) {
	s.stats.Fragments++
	packet := s.frags.Add(&s.ip, s.flat(pieces), now)
	if packet == nil {
		return
	}
	s.stats.Reassembled++
	s.datagram(append(s.pieces[:0], packet), now)
}

// icmp passes an ICMP error to the connection whose segment it quotes (RFC 5927).
func (s *Stack) icmp(pieces [][]byte, now tick.Time) {
	var e ip.ICMPError
	if err := e.DecodeICMP(&s.ip, s.flat(pieces)); err != nil {
		s.stats.DropMalformed++
		return
	}
	t := tcp.Tuple{Local: e.Local, Remote: e.Remote, LocalPort: e.LocalPort,
		RemotePort: e.RemotePort}
	switch {
	case s.DeliverICMP(&t, &e, now):
	case s.cfg.Stray != nil && s.cfg.Stray(&Stray{Tuple: t, ICMP: &e}):
		s.stats.HandedOver++
	default:
		s.stats.DropICMP++
	}
}

// clip limits pieces to n bytes in total.
func clip(pieces [][]byte, n int) [][]byte {
	for i, p := range pieces {
		if n <= len(p) {
			pieces[i] = p[:n]
			return pieces[:i+1]
		}
		n -= len(p)
	}
	return pieces
}

// segment processes a TCP segment of s.seg.Len bytes including its header. It begins with b and continues in
// s.pieces[1:frags]; sum is the sum of its pseudo-header. near is a connection between the same hosts; if it is nil,
// s.ip is the IP header. The source MAC address does not matter: paths can be asymmetric, and routers that share an
// address (VRRP) and bonds send from several. An off-path station does not know the sequence numbers.
func (s *Stack) segment(near *Endpoint, b []byte, frags int, sum uint64, now tick.Time) {
	head, err := s.seg.Decode(b)
	if err != nil {
		s.malformed(b, frags, sum)
		return
	}
	e := near
	if near == nil || near.tuple.RemotePort != s.seg.SrcPort ||
		near.tuple.LocalPort != s.seg.DstPort {
		e = s.find(near)
	}
	s.setCurrent(e)
	s.seg.Len -= head
	payload := b[head:]
	s.pieces[0] = payload
	pieces := s.pieces[:frags]
	crc := checksum.Known{}
	if !s.acceptsPartial(b, sum) {
		// One pass computes the checksum and, only if it is useful, the CRC32C.
		all := wire.Sum(b[:head], sum)
		if e != nil && e.crc != nil && s.seg.Len > 0 &&
			e.crc.WantsCRC(s.seg.Seq, pieces, s.seg.Len) {
			crc.Valid = true
			crc.CRC, all = checksum.Sum(payload, 0, all)
		} else {
			all = wire.Sum(payload, all)
		}
		if frags > 1 {
			all = sumRest(pieces, all, &crc)
		}
		if !s.checkSum(all, b, sum) {
			return
		}
	}
	if s.cfg.IPsec != nil && !s.permitted(e) {
		s.stats.DropPolicy++
		return
	}
	if e != nil && !(e.conn.State() == tcp.TimeWait && s.reuse(e, now)) {
		e.receive(&s.seg, pieces, crc, now)
		return
	}
	if s.cfg.Stray != nil && s.stray(pieces) {
		return
	}
	s.unowned(pieces, now)
}

// unowned processes s.seg, which has no connection.
func (s *Stack) unowned(pieces [][]byte, now tick.Time) {
	t := &s.tuple
	if !s.admits(t) {
		return
	}
	if l := s.listenerFor(t); l != nil {
		l.input(t, pieces, now)
		return
	}
	s.stats.DropNoConnection++
	if tcp.ResetReply(&s.seg, &s.out) {
		s.stats.Resets++
		s.answer(t, &s.out, now)
	}
}

// reuse ends a connection in TIME-WAIT if s.seg is a SYN that may reopen it (RFC 6191), and reports whether it did.
func (s *Stack) reuse(e *Endpoint, now tick.Time) bool {
	if s.listenerFor(&e.tuple) == nil || !e.conn.Reusable(&s.seg) {
		return false
	}
	s.tuple = e.tuple
	e.conn.Recycle()
	e.events(now)
	s.forget(e, now)
	return true
}

// find sets s.tuple, with the addresses of near if there is one, and returns its connection.
func (s *Stack) find(near *Endpoint) *Endpoint {
	t := &s.tuple
	if near != nil {
		*t = near.tuple
	} else {
		t.Local, t.Remote = s.ip.Dst, s.ip.Src
	}
	t.LocalPort, t.RemotePort = s.seg.DstPort, s.seg.SrcPort
	if e := s.last; e != nil && e.tuple == *t {
		return e
	}
	e := s.conns[*t]
	if e != nil {
		s.last = e
	}
	return e
}

// sumRest adds the pieces after the first to crc, if it is valid, and to sum, which already includes the first.
func sumRest(pieces [][]byte, sum uint64, crc *checksum.Known) uint64 {
	for i, b := range pieces[1:] {
		if len(pieces[i])&1 != 0 { // an odd length swaps the bytes of later pieces
			sum = bits.RotateLeft64(sum, 8)
		}
		if crc.Valid {
			crc.CRC, sum = checksum.Sum(b, crc.CRC, sum)
		} else {
			sum = wire.Sum(b, sum)
		}
	}
	return sum
}

// acceptsPartial reports whether to accept a segment whose header h has a checksum of the pseudo-header only, and
// counts it. A kernel leaves such a checksum for hardware to complete, and writes it when it merges segments whose
// checksums it has verified. The segment is accepted if it was not on a wire: the link is a veth, or the frame is
// longer than the MTU.
func (s *Stack) acceptsPartial(h []byte, pseudo uint64) bool {
	if !isPartial(h, pseudo) ||
		!s.cfg.Veth && s.rxLen <= s.cfg.MTU+ip.EthernetLen+2*ip.VLANTagLen {
		return false
	}
	s.stats.PartialSums++
	return true
}

func isPartial(h []byte, pseudo uint64) bool {
	return binary.BigEndian.Uint16(h[wire.ChecksumAt:]) == wire.Fold(pseudo)
}

// checkSum reports whether all, the sum of a segment and its pseudo-header, is that of a correct checksum. If not, it
// counts the drop; h is the header, and pseudo the sum of the pseudo-header.
func (s *Stack) checkSum(all uint64, h []byte, pseudo uint64) bool {
	switch {
	case wire.Right(all):
		return true
	case isPartial(h, pseudo):
		s.stats.DropPartialSum++
	default:
		s.stats.DropChecksum++
	}
	return false
}

// malformed counts a segment with an invalid header. If its checksum is wrong too, malformed counts only the wrong
// checksum.
func (s *Stack) malformed(b []byte, frags int, sum uint64) {
	if len(b) >= wire.HeaderLen && !s.acceptsPartial(b, sum) {
		s.pieces[0] = b
		all := sumRest(s.pieces[:frags], wire.Sum(b, sum), &checksum.Known{})
		if !s.checkSum(all, b, sum) {
			return
		}
	}
	s.stats.DropMalformed++
}

// initReply makes f the headers of a segment that no connection sends. Its DSCP is that of the connection or listener
// with the tuple t, if there is one, otherwise the stack's.
func (s *Stack) initReply(f *template, t *tcp.Tuple) {
	f.init(&s.cfg, t)
	if e := s.conns[*t]; e != nil {
		f.tos = e.frame.tos
	} else if l := s.listenerFor(t); l != nil {
		f.tos = l.cfg.TOS &^ 3
	}
}

// reply sends o, which has no payload, to mac.
func (s *Stack) reply(t *tcp.Tuple, o *tcp.Out, mac [6]byte) {
	buf, ok := s.port.AllocTx()
	if !ok {
		s.stats.NoSlot++
		return
	}
	if f := s.flowOf(t); f != nil {
		s.replySealed(buf, f, t, o, mac)
		s.queued = true
		return
	}
	var f template
	s.initReply(&f, t)
	n := f.build(buf.Data, o, mac)
	s.put(buf, f.finish(buf.Data, n, o, 0))
	s.queued = true
}
