package ip

import (
	"encoding/binary"

	"xwarp/tcp/seq"
	"xwarp/tcp/wire"
)

// ICMPKind is the meaning of an ICMP error for a TCP connection (RFC 1122, 4.2.3.9; RFC 5461).
type ICMPKind uint8

const (
	ICMPNone ICMPKind = iota
	PacketTooBig
	NetUnreachable
	HostUnreachable
	ProtoUnreachable
	PortUnreachable
	Prohibited
	TimeExceeded
	ParameterProblem
)

var icmpTexts = [...]string{"none", "packet too big", "network unreachable", "host unreachable",
	"protocol unreachable",
	"port unreachable", "administratively prohibited", "time exceeded", "parameter problem"}

// String returns k in words.
func (k ICMPKind) String() string {
	if int(k) < len(icmpTexts) {
		return icmpTexts[k]
	}
	return "?"
}

// ICMPError is an ICMP error that quotes a TCP segment or an ESP packet which this host sent.
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+---------------+---------------+-------------------------------+
//	|     Type      |     Code      |          Checksum             |
//	+---------------+---------------+-------------------------------+
//	|   IPv6: MTU;  IPv4: unused    |   IPv4: next-hop MTU          |
//	+-------------------------------+-------------------------------+
//	|   the packet's IP header, and at least 8 bytes of its TCP    |
type ICMPError struct {
	Kind ICMPKind
	From Addr // sender of the message
	MTU  int  // for PacketTooBig; 0: the message has none (RFC 1191, 3)

	// The quoted packet. This host sent it, so Local is its source.
	Local, Remote         Addr
	LocalPort, RemotePort uint16
	SPI                   uint32  // of a quoted ESP packet, which has no ports; 0: a TCP segment
	Seq                   seq.Num // sequence number; of an ESP packet, its low 32 bits
	Len                   int     // total length of the quoted IP packet
}

// DecodeICMP sets e from payload, the ICMP or ICMPv6 message of a packet with header h.
func (e *ICMPError) DecodeICMP(h *Header, payload []byte) error {
	var kind ICMPKind
	var mtu int
	switch {
	case len(payload) < 8:
		return ErrShort
	case !h.V6 && h.Proto == ProtoICMP:
		if wire.Fold(wire.Sum(payload, 0)) != 0xffff {
			return ErrChecksum
		}
		kind, mtu = icmp4(payload[0], payload[1]), int(binary.BigEndian.Uint16(payload[6:]))
	case h.V6 && h.Proto == ProtoICMPv6:
		if wire.Fold(wire.Sum(payload, h.PseudoSum(len(payload)))) != 0xffff {
			return ErrChecksum
		}
		kind, mtu = icmp6(payload[0], payload[1]),
			int(min(binary.BigEndian.Uint32(payload[4:]), 1<<16))
	}
	if kind == ICMPNone {
		return ErrICMP
	}
	*e = ICMPError{Kind: kind, From: h.Src}
	if kind == PacketTooBig {
		e.MTU = mtu
	}
	return e.quoted(h.V6, payload[8:])
}

// icmp4 returns the meaning of a type and code of RFC 792, 1122 and 1812; ICMPNone if it does not concern connections.
func icmp4(typ, code byte) ICMPKind {
	switch typ {
	case 3:
		switch code {
		case 2:
			return ProtoUnreachable
		case 3:
			return PortUnreachable
		case 4:
			return PacketTooBig
		case 9, 10, 13:
			return Prohibited
		case 0, 6, 11:
			return NetUnreachable
		case 1, 5, 7, 8, 12, 14, 15:
			return HostUnreachable
		}
	case 11:
		return TimeExceeded
	case 12:
		return ParameterProblem
	}
	return ICMPNone
}

// icmp6 returns the meaning of a type and code of RFC 4443; ICMPNone if it does not concern connections.
func icmp6(typ, code byte) ICMPKind {
	switch typ {
	case 1:
		switch code {
		case 0:
			return NetUnreachable
		case 1, 5, 6:
			return Prohibited
		case 2, 3:
			return HostUnreachable
		case 4:
			return PortUnreachable
		}
	case 2:
		return PacketTooBig
	case 3:
		return TimeExceeded
	case 4:
		if code == 1 {
			return ProtoUnreachable
		}
		return ParameterProblem
	}
	return ICMPNone
}

// quoted sets the fields of the quoted packet from b, which usually holds only its beginning.
func (e *ICMPError) quoted(v6 bool, b []byte) error {
	off, proto := 0, uint8(0)
	switch {
	case !v6 && len(b) >= Len4 && b[0]>>4 == 4 && binary.BigEndian.Uint16(b[6:])&fragOffMask == 0:
		off, proto = int(b[0]&15)*4, b[9]
		e.Local, e.Remote = AddrFrom4([4]byte(b[12:16])), AddrFrom4([4]byte(b[16:20]))
		e.Len = int(binary.BigEndian.Uint16(b[2:]))
	case v6 && len(b) >= Len6 && b[0]>>4 == 6:
		off, proto = Len6, b[6]
		e.Local, e.Remote = Addr(b[8:24]), Addr(b[24:40])
		e.Len = Len6 + int(binary.BigEndian.Uint16(b[4:]))
	}
	if proto != ProtoTCP && proto != ProtoESP || off < Len4 || len(b)-off < 8 {
		return ErrICMP
	}
	t := b[off:]
	if proto == ProtoESP {
		e.SPI, e.Seq = binary.BigEndian.Uint32(t), seq.Num(binary.BigEndian.Uint32(t[4:]))
		if e.SPI == 0 { // RFC 4303, 2.1: never sent
			return ErrICMP
		}
		return nil
	}
	e.LocalPort, e.RemotePort = binary.BigEndian.Uint16(t), binary.BigEndian.Uint16(t[2:])
	e.Seq = seq.Num(binary.BigEndian.Uint32(t[4:]))
	return nil
}
