package impair

import (
	"encoding/binary"
	"net/netip"
)

// The ICMP messages of path MTU discovery.
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

// replyTooBig answers a packet larger than the path's MTU, where a router may: RFC 1812, 4.3.2.7 and RFC 4443, 2.4 (e).
func (p *Path) replyTooBig(b *Buf) {
	f, v := b.Data, &b.view
	if !p.cfg.MTUReply || f[0]&1 != 0 { // multicast and broadcast get no answer
		return
	}
	var r *Buf
	if v.v6 {
		if isICMP6Error(f, v) {
			return
		}
		r = p.tooBig6(f, v)
	} else {
		h := f[v.ip:]
		offset := binary.BigEndian.Uint16(h[6:]) & 0x1fff
		if h[6]&ipv4DontFragment == 0 || offset != 0 || isICMPError(h) {
			return
		}
		r = p.tooBig4(f, v)
	}
	p.c.Replies++
	p.reply.push(r)
}

func isICMPError(h []byte) bool {
	at := int(h[0]&15) * 4
	return h[9] == protoICMP && len(h) > at && h[at] != icmpEcho && h[at] != icmpEchoReply
}

func isICMP6Error(f []byte, v *view) bool {
	at := v.ip + ipv6Header
	return f[v.ip+6] == protoICMPv6 && at < v.end && f[at] < icmp6FirstInfo
}

// answer returns a buffer whose Ethernet header leads back to f's sender, with n octets behind it.
func (p *Path) answer(f []byte, v *view, n int) *Buf {
	r := p.pool.Get(v.ip + n)
	clear(r.Data)
	copy(r.Data[0:6], f[6:12])
	copy(r.Data[6:12], f[0:6])
	copy(r.Data[12:v.ip], f[12:v.ip])
	return r
}

func (p *Path) tooBig4(f []byte, v *view) *Buf {
	quote := f[v.ip:min(v.end, v.ip+maxQuote4)]
	r := p.answer(f, v, ipv4Header+icmpHeader+len(quote))
	h := r.Data[v.ip:]
	h[0] = 4<<4 | ipv4Header/4
	binary.BigEndian.PutUint16(h[2:], uint16(len(h)))
	h[8], h[9] = hopLimit, protoICMP
	copy(h[12:16], address(p.cfg.Reply4, quote[16:20]))
	copy(h[16:20], quote[12:16])
	setIPv4Checksum(h)
	m := h[ipv4Header:]
	m[0], m[1] = icmpUnreachable, icmpFragNeeded
	binary.BigEndian.PutUint16(m[6:], uint16(p.cfg.MTU))
	copy(m[icmpHeader:], quote)
	binary.BigEndian.PutUint16(m[2:], fold(onesSum(0, m)))
	return r
}

func (p *Path) tooBig6(f []byte, v *view) *Buf {
	quote := f[v.ip:min(v.end, v.ip+maxQuote6)]
	r := p.answer(f, v, ipv6Header+icmpHeader+len(quote))
	h := r.Data[v.ip:]
	h[0] = 6 << 4
	binary.BigEndian.PutUint16(h[4:], uint16(icmpHeader+len(quote)))
	h[6], h[7] = protoICMPv6, hopLimit
	copy(h[8:24], address(p.cfg.Reply6, quote[24:40]))
	copy(h[24:40], quote[8:24])
	m := h[ipv6Header:]
	m[0] = icmp6PacketTooBig
	binary.BigEndian.PutUint32(m[4:], uint32(p.cfg.MTU))
	copy(m[icmpHeader:], quote)
	rv := view{v6: true, ip: v.ip, l4: v.ip + ipv6Header, end: len(r.Data)}
	binary.BigEndian.PutUint16(m[2:], transportSum(r.Data, &rv, protoICMPv6))
	return r
}

// address returns the octets of a, or instead when a is not set.
func address(a netip.Addr, instead []byte) []byte {
	if !a.IsValid() {
		return instead
	}
	return a.AsSlice()
}
