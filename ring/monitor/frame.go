package monitor

import (
	"encoding/binary"
	"net/netip"

	"xwarp/tcp/ip"
	"xwarp/tcp/wire"
)

// Offsets in a frame besides those of tcp/ip and tcp/wire.
const (
	etherType = 12
	maxTags   = 2
	tcpFlags  = wire.FlagsAt + 1
)

// Flags of TCP.
const (
	fin = byte(wire.FIN)
	syn = byte(wire.SYN)
	rst = byte(wire.RST)
)

// Flow is a TCP connection as this host sees it.
type Flow struct{ Local, Remote netip.AddrPort }

// segment describes the TCP segment of a frame. The first piece of the frame has all bytes up to the end of the fixed
// TCP header.
type segment struct {
	ip, tcp int  // offsets of the headers
	v6      bool // IPv6
	flags   byte
	payload int // payload bytes by the IP header, even if the first piece of the frame has fewer
	data    int // offset of the payload
}

// parse finds the TCP segment in a frame that begins with b. ok is false if there is none. IP fragments other than the
// first have none.
func parse(b []byte) (s segment, ok bool) {
	at := etherType
	for range maxTags {
		if len(b) >= at+2+ip.VLANTagLen && (b[at] == 0x81 && b[at+1] == 0 || b[at] == 0x88 &&
			b[at+1] == 0xa8) {
			at += ip.VLANTagLen
		}
	}
	if len(b) < at+2+ip.Len4 {
		return s, false
	}
	s.ip = at + 2
	length := 0
	switch binary.BigEndian.Uint16(b[at:]) {
	case 0x0800:
		h := b[s.ip:]
		if h[9] != ip.ProtoTCP || binary.BigEndian.Uint16(h[6:])&0x1fff != 0 {
			return s, false
		}
		s.tcp = s.ip + int(h[0]&15)*4
		length = s.ip + int(binary.BigEndian.Uint16(h[2:]))
	case 0x86dd:
		if len(b) < s.ip+ip.Len6 || b[s.ip+6] != ip.ProtoTCP {
			return s, false
		}
		s.v6, s.tcp = true, s.ip+ip.Len6
		length = s.tcp + int(binary.BigEndian.Uint16(b[s.ip+4:]))
	default:
		return s, false
	}
	if len(b) < s.tcp+wire.HeaderLen {
		return s, false
	}
	s.flags = b[s.tcp+tcpFlags]
	s.data = s.tcp + int(b[s.tcp+12]>>4)*4
	s.payload = max(0, length-s.data)
	return s, true
}

// flow returns the connection of a segment in a frame that begins with b and has direction d.
func (s *segment) flow(b []byte, d Direction) Flow {
	var from, to netip.Addr
	if s.v6 {
		from, to = netip.AddrFrom16([16]byte(b[s.ip+8:])).Unmap(),
			netip.AddrFrom16([16]byte(b[s.ip+24:])).Unmap()
	} else {
		from, to = netip.AddrFrom4([4]byte(b[s.ip+12:])), netip.AddrFrom4([4]byte(b[s.ip+16:]))
	}
	f := Flow{netip.AddrPortFrom(to, binary.BigEndian.Uint16(b[s.tcp+2:])),
		netip.AddrPortFrom(from, binary.BigEndian.Uint16(b[s.tcp:]))}
	if d == Tx {
		f.Local, f.Remote = f.Remote, f.Local
	}
	return f
}

// bucket returns the same number for both directions of a connection: the sum of the last words of the addresses and of
// the ports.
func (s *segment) bucket(b []byte) uint32 {
	from, to := s.ip+12, s.ip+16
	if s.v6 {
		from, to = s.ip+20, s.ip+36
	}
	h := binary.BigEndian.Uint32(b[from:]) + binary.BigEndian.Uint32(b[to:])
	h += uint32(binary.BigEndian.Uint16(b[s.tcp:])) + uint32(binary.BigEndian.Uint16(b[s.tcp+2:]))
	return (h * 0x9e3779b1) >> (32 - bucketBits)
}
