package stack

import (
	"encoding/binary"

	"xwarp/ring"
	"xwarp/tcp"
	"xwarp/tcp/ip"
	"xwarp/tcp/tick"
	"xwarp/tcp/wire"
)

// input processes one frame. Nothing of p is kept.
func (s *Stack) input(p *ring.Packet, now tick.Time) {
	s.serve(nil)
	s.stats.RxFrames++
	s.stats.RxOctets += uint64(p.Len())
	pieces := p.Frags(s.pieces[:0])
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
	switch {
	case s.ip.Fragment:
		s.fragment(pieces, now)
	case s.ip.Proto == ip.ProtoTCP:
		s.segment(pieces, now)
	default:
		s.icmp(pieces, now)
	}
}

// maxVLAN are the bits of a tag that hold its VLAN's identifier.
const maxVLAN = 0xfff

// vlanOf returns the VLAN that a frame is of, 0 for none. A tag with identifier 0 says its priority only
// (IEEE 802.1Q, 9.6). A frame of a VLAN within another, or within a service provider's, is of none that a
// stack can have: -1.
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

// flat returns pieces as one, copied when they are several.
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

// fragment keeps a fragment until its datagram is whole.
func (s *Stack) fragment(pieces [][]byte, now tick.Time) {
	s.stats.Fragments++
	whole := s.frags.Add(&s.ip, s.flat(pieces), now)
	if whole == nil {
		return
	}
	s.stats.Reassembled++
	switch pieces = append(s.pieces[:0], whole); s.ip.Proto {
	case ip.ProtoTCP:
		s.segment(pieces, now)
	default:
		s.icmp(pieces, now)
	}
}

// icmp gives an ICMP error to the connection whose segment it quotes (RFC 5927).
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

// clip cuts pieces to n octets in all.
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

// segment processes a TCP segment that lies in pieces, with header s.ip. One of a connection may come from
// any station: paths need not be symmetric, routers that share an address (VRRP) send from several, and so do
// bonds. A station that does not see what leaves knows no sequence number.
func (s *Stack) segment(pieces [][]byte, now tick.Time) {
	if s.ip.ValidTCP() != nil {
		s.stats.DropSource++
		return
	}
	if !s.verify(pieces) {
		return
	}
	off, err := s.seg.Decode(pieces[0])
	if err != nil {
		s.stats.DropMalformed++
		return
	}
	s.seg.Len, s.seg.ECN = s.ip.PayloadLen-off, tcp.ECN(s.ip.TOS&3)
	pieces[0] = pieces[0][off:]
	t := &s.tuple
	*t = tcp.Tuple{Local: s.ip.Dst, Remote: s.ip.Src, LocalPort: s.seg.DstPort,
		RemotePort: s.seg.SrcPort}
	if e := s.find(t); e != nil && !s.reuse(e, now) {
		e.receive(&s.seg, pieces, now)
		return
	}
	if s.cfg.Stray != nil && s.stray(pieces) {
		return
	}
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

// reuse frees a connection in TIME-WAIT when s.seg is a SYN that may open it again (RFC 6191).
func (s *Stack) reuse(e *Endpoint, now tick.Time) bool {
	if e.conn.State() != tcp.TimeWait || !s.seg.Flags.Has(wire.SYN) ||
		s.listenerFor(&e.tuple) == nil || !e.conn.Reusable(&s.seg) {
		return false
	}
	e.conn.Recycle()
	e.events(now)
	s.forget(e, now)
	return true
}

func (s *Stack) find(t *tcp.Tuple) *Endpoint {
	if s.last.ep != nil && s.last.tuple == *t {
		return s.last.ep
	}
	e := s.conns[*t]
	if e != nil {
		s.last = lookup{*t, e}
	}
	return e
}

// verify checks the TCP checksum over all pieces.
func (s *Stack) verify(pieces [][]byte) bool {
	if len(pieces[0]) < wire.HeaderLen {
		s.stats.DropMalformed++
		return false
	}
	pseudo := s.ip.PseudoSum(s.ip.PayloadLen)
	var sum uint16
	if len(pieces) == 1 {
		sum = wire.Fold(wire.Sum(pieces[0], pseudo))
	} else {
		var p wire.Pieces
		p.Start(pseudo)
		for _, b := range pieces {
			p.Add(b)
		}
		sum = p.Fold()
	}
	if sum == 0xffff {
		return true
	}
	if binary.BigEndian.Uint16(pieces[0][16:]) == wire.Fold(pseudo) {
		if s.cfg.TrustPartialChecksum {
			return true
		}
		s.stats.DropPartialSum++
	}
	s.stats.DropChecksum++
	return false
}

// reply sends o, which has no payload, to mac.
func (s *Stack) reply(t *tcp.Tuple, o *tcp.Out, mac [6]byte) {
	buf, ok := s.port.AllocTx()
	if !ok {
		s.stats.NoSlot++
		return
	}
	var f template
	f.init(&s.cfg, t)
	n := f.build(buf.Data, o, mac)
	n = f.finish(buf.Data, n, 0, 0)
	s.put(buf, n)
	s.queued = true
}
