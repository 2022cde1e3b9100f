package impair

import (
	"encoding/binary"

	"xwarp/tcp/ip"
	"xwarp/tcp/wire"
)

// Header fields of the ICMP errors that a path sends, and of the ICMP messages that it must not answer.
const (
	icmpHeader             = 8
	icmpUnreachable        = 3
	icmpFragNeeded         = 4
	icmpEchoReply          = 0
	icmpEcho               = 8
	icmp6PacketTooBig      = 2
	icmp6FirstInfo         = 128 // types below are errors
	ipv4DontFragment  byte = 0x40
	hopLimit               = 64
)

// replyTooBig answers a packet larger than the path's MTU by an ICMP error, if MTUReply is set and a router may answer:
// RFC 1812, 4.3.2.7 and RFC 4443, 2.4 (e).
func (p *Path) replyTooBig(b *Buf) {
	f, v := b.Data, &b.view
	if !p.cfg.MTUReply || f[0]&1 != 0 { // multicast and broadcast get no answer
		return
	}
	h := f[v.ip:]
	if v.v6 {
		if isICMP6Error(f, v) {
			return
		}
	} else if offset := binary.BigEndian.Uint16(h[6:]) & 0x1fff; h[6]&ipv4DontFragment == 0 ||
		offset != 0 || isICMPError(h) {
		return
	}
	p.c.Replies++
	p.reply.push(p.tooBig(f, v))
}

func isICMPError(h []byte) bool {
	at := int(h[0]&15) * 4
	return h[9] == ip.ProtoICMP && len(h) > at && h[at] != icmpEcho && h[at] != icmpEchoReply
}

func isICMP6Error(f []byte, v *view) bool {
	at := v.ip + ip.Len6
	return f[v.ip+6] == ip.ProtoICMPv6 && at < v.end && f[at] < icmp6FirstInfo
}

// answer returns a buffer with an Ethernet header to the sender of f, VLAN tags included, followed by n zero bytes.
func (p *Path) answer(f []byte, v *view, n int) *Buf {
	r := p.pool.Get(v.ip + n)
	clear(r.Data)
	copy(r.Data[0:6], f[6:12])
	copy(r.Data[6:12], f[0:6])
	copy(r.Data[12:v.ip], f[12:v.ip])
	return r
}

// tooBig returns the ICMP error for the packet in f. It quotes the beginning of that packet.
func (p *Path) tooBig(f []byte, v *view) *Buf {
	packet := f[v.ip:v.end]
	h := ip.Header{V6: v.v6, TTL: hopLimit}
	router, most := p.cfg.Reply4, maxQuote4
	if v.v6 {
		router, most = p.cfg.Reply6, maxQuote6
		h.Proto, h.Src, h.Dst = ip.ProtoICMPv6, ip.Addr(packet[24:]), ip.Addr(packet[8:])
	} else {
		h.Proto = ip.ProtoICMP
		h.Src, h.Dst = ip.AddrFrom4([4]byte(packet[16:])), ip.AddrFrom4([4]byte(packet[12:]))
	}
	if router.IsValid() {
		h.Src = router.As16()
	}
	quote := packet[:min(len(packet), most)]
	h.PayloadLen = icmpHeader + len(quote)
	r := p.answer(f, v, h.Len()+h.PayloadLen)
	m := r.Data[v.ip+h.Put(r.Data[v.ip:]):]
	copy(m[icmpHeader:], quote)
	var sum uint64
	if v.v6 {
		m[0] = icmp6PacketTooBig
		binary.BigEndian.PutUint32(m[4:], uint32(p.cfg.MTU))
		sum = h.PseudoSum(len(m))
	} else {
		m[0], m[1] = icmpUnreachable, icmpFragNeeded
		binary.BigEndian.PutUint16(m[6:], uint16(p.cfg.MTU))
	}
	binary.BigEndian.PutUint16(m[2:], wire.Finish(wire.Sum(m, sum)))
	return r
}
