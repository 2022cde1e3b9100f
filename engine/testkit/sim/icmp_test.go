package sim

import (
	"bytes"
	"encoding/binary"

	"xwarp/tcp/ip"
)

// icmpAbout returns an ICMP error in a router's name about a frame that a host has just sent: of any kind, with an MTU
// of any size, which old routers omit.
func (f *foreigner) icmpAbout(frame []byte) []byte {
	var e ip.Ethernet
	off, _ := e.Decode(frame)
	packet := frame[off:]
	v6 := packet[0]>>4 == 6
	h := ip.Header{V6: v6, TTL: 64}
	quote := packet[:min(len(packet), 60)]
	m := make([]byte, 8, 8+len(quote))
	switch {
	case v6:
		h.Proto, h.Src, h.Dst = ip.ProtoICMPv6, ip.Addr(packet[24:40]), ip.Addr(packet[8:24])
		m[0], m[1] = byte(1+f.r.IntN(4)), byte(f.r.IntN(7))
		if m[0] == 2 {
			binary.BigEndian.PutUint32(m[4:], uint32(f.r.IntN(2000)))
		}
	default:
		h.Proto = ip.ProtoICMP
		h.Src, h.Dst = ip.AddrFrom4([4]byte(packet[16:])), ip.AddrFrom4([4]byte(packet[12:]))
		m[0], m[1] = pick(f.r, byte(3), 3, 3, 11, 12), byte(f.r.IntN(14))
		if m[1] == 4 && f.r.IntN(2) == 0 {
			binary.BigEndian.PutUint16(m[6:], uint16(f.r.IntN(2000)))
		}
	}
	m = append(m, quote...)
	h.PayloadLen = len(m)
	b := make([]byte, off+h.Len(), off+h.Len()+len(m))
	copy(b, frame[6:12])
	copy(b[6:], frame[:6])
	copy(b[12:], frame[12:off])
	h.Put(b[off:])
	b = append(b, m...)
	repair(b, false)
	return b
}

// spoiled returns a copy of a TCP segment with an invalid header and a valid checksum.
func (f *foreigner) spoiled(b []byte, at int) []byte {
	g := bytes.Clone(b)
	g[at+12] = byte(f.r.IntN(5))<<4 | g[at+12]&15
	repair(g, false)
	return g
}

// Reply implements Path.
func (f *foreigner) Reply() []byte {
	if len(f.replies) == 0 {
		return f.Path.Reply()
	}
	r := f.replies[0]
	f.replies = f.replies[1:]
	return r
}
